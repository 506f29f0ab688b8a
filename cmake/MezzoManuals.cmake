# Completions of shells and man pages, made by the program that was built: mezzo_manuals writes them to build/manuals, and
# `cmake --install` puts them where shells and man look for them.

set(manuals ${PROJECT_BINARY_DIR}/manuals)
add_custom_command(
  OUTPUT ${manuals}/done
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:mezzo_program> -DVERSION=${PROJECT_VERSION} -DTO=${manuals} -P
          ${PROJECT_SOURCE_DIR}/cmake/make_manuals.cmake
  DEPENDS mezzo_program ${PROJECT_SOURCE_DIR}/cmake/make_manuals.cmake ${PROJECT_SOURCE_DIR}/cmake/manual.awk
  COMMENT "Writing completions and man pages" VERBATIM)
add_custom_target(mezzo_manuals ALL DEPENDS ${manuals}/done)

# mezzo_install_manuals(DATA MAN): below these folders.
function(mezzo_install_manuals data man)
  install(DIRECTORY ${manuals}/man1 DESTINATION ${man})
  install(FILES ${manuals}/mezzo.bash DESTINATION ${data}/bash-completion/completions RENAME mezzo)
  install(FILES ${manuals}/mezzo.zsh DESTINATION ${data}/zsh/site-functions RENAME _mezzo)
  install(FILES ${manuals}/mezzo.fish DESTINATION ${data}/fish/vendor_completions.d)
endfunction()
