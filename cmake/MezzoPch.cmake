# mezzo_pch(NAME header...): LibTorch's front end costs a quarter of a minute a file. A target of this kind parses these
# headers once, for all who say target_precompile_headers(TARGET REUSE_FROM NAME); it gives them nothing else.
function(mezzo_pch name)
  file(CONFIGURE OUTPUT ${name}.cpp CONTENT "// Its precompiled header is what is wanted.\n")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE LibTorch::torch mezzo_flags)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
