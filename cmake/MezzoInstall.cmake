# What `cmake --install` copies: the shared libraries and programs that src/ defines, the benchmarks, the public headers, and the files by
# which find_package(mezzo CONFIG) gives mezzo::mezzo (and mezzo::convert) with LibTorch's place already known.
#
# A wheel (SKBUILD is set by scikit-build-core, see pyproject.toml) holds the program, the converter's library and nothing else.
#
# mezzo_installed is the target that builds all of it and nothing else.

if(SKBUILD)
  include(MezzoManuals)
  install(PROGRAMS $<TARGET_FILE:mezzo_program> DESTINATION ${SKBUILD_SCRIPTS_DIR})
  install(FILES $<TARGET_FILE:mezzo_convert> DESTINATION mezzo RENAME libmezzo_convert.so)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/manuals/man1 DESTINATION ${SKBUILD_DATA_DIR}/share/man)
  add_custom_target(mezzo_wheel DEPENDS mezzo_program mezzo_convert mezzo_manuals)
  return()
endif()

include(CMakePackageConfigHelpers)

# The targets under a folder that run or are loaded.
function(mezzo_products folder result)
  set(found)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(excluded ${target} EXCLUDE_FROM_ALL)
    if(type MATCHES "^(SHARED_LIBRARY|MODULE_LIBRARY|EXECUTABLE)$" AND NOT excluded)
      list(APPEND found ${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    mezzo_products(${below} more)
    list(APPEND found ${more})
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

mezzo_products(${PROJECT_SOURCE_DIR}/src products)
if(TARGET mezzo_bench) # `mezzo bench` runs it
  list(APPEND products mezzo_bench)
endif()
add_custom_target(mezzo_installed DEPENDS ${products})
if(NOT MEZZO_SANITIZE) # a program with sanitizers is not run while building
  include(MezzoManuals)
  add_dependencies(mezzo_installed mezzo_manuals)
endif()

set(run_path "$ORIGIN" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
if(MEZZO_TORCH)
  cmake_path(GET LibTorch_CPU_LIBRARY PARENT_PATH libtorch_libraries)
  cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH MEZZO_LIBTORCH)
  list(APPEND run_path "${libtorch_libraries}")
endif()

set(MEZZO_CONVERT_TARGETS FALSE)
foreach(target IN LISTS products)
  set_property(TARGET ${target} PROPERTY INSTALL_RPATH "${run_path}")
  set(set_of_target)
  if(target STREQUAL "mezzo")
    set(set_of_target EXPORT mezzoTargets)
  elseif(target STREQUAL "mezzo_convert")
    set_property(TARGET mezzo_convert PROPERTY EXPORT_NAME convert)
    set(set_of_target EXPORT mezzoConvertTargets)
    set(MEZZO_CONVERT_TARGETS TRUE)
  endif()
  install(TARGETS ${target} ${set_of_target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/mezzo)
if(MEZZO_TORCH)
  install(EXPORT mezzoTargets NAMESPACE mezzo:: DESTINATION ${package_folder})
endif()
if(MEZZO_CONVERT_TARGETS)
  install(EXPORT mezzoConvertTargets NAMESPACE mezzo:: DESTINATION ${package_folder})
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mezzoConfig.cmake.in ${PROJECT_BINARY_DIR}/mezzoConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mezzoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mezzoConfig.cmake ${PROJECT_BINARY_DIR}/mezzoConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake DESTINATION ${package_folder})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mezzo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.h)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mezzo)
