# One folder under src/ = one object library = one box of ARCHITECTURE.md.
#
#   mezzo_module(NAME casting TORCH SOURCES ... DEPENDS core policy PUBLIC autocast.h
#                [ROOMS "floor" "upper: floor"] [LINK targets] [LIBRARIES mezzo mezzo_convert])
#
# TORCH      the module uses LibTorch, whose headers are parsed once for all such modules; without it the module builds in
#            every preset.
# DEPENDS    the modules it may include; tests/layers checks it, see check_layers.cmake.
# PUBLIC     the headers in include/mezzo/ that belong to it.
# ROOMS      its folders, each with the rooms of the module that it may include, which are declared before it; a folder without a
#            room fails the test. The files beside CMakeLists.txt may include all rooms and are included by none. A room is compiled
#            as one unit, so that its headers are read once: names in its anonymous namespaces are unique within it.
# LIBRARIES  the shared libraries that contain its objects (default: mezzo).

function(mezzo_module)
  cmake_parse_arguments(PARSE_ARGV 0 m "TORCH" "NAME" "SOURCES;PUBLIC;DEPENDS;ROOMS;LINK;LIBRARIES")
  if(m_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "mezzo_module(${m_NAME}): unknown arguments ${m_UNPARSED_ARGUMENTS}")
  endif()
  list(JOIN m_DEPENDS "," depends)
  list(JOIN m_PUBLIC "," public)
  set_property(GLOBAL APPEND PROPERTY MEZZO_LAYERS "${m_NAME}:${depends}:${public}")
  foreach(room IN LISTS m_ROOMS)
    string(REGEX REPLACE " *: *" ":" room "${m_NAME}/${room}")
    string(REPLACE " " "," room "${room}")
    set_property(GLOBAL APPEND PROPERTY MEZZO_ROOMS "${room}")
  endforeach()
  if(m_TORCH AND NOT MEZZO_TORCH)
    return()
  endif()
  if(NOT m_LIBRARIES)
    set(m_LIBRARIES mezzo)
  endif()
  set(objects mezzo_${m_NAME})
  if(objects IN_LIST m_LIBRARIES)
    string(APPEND objects _objects)
  endif()
  add_library(${objects} OBJECT ${m_SOURCES})
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${objects} PRIVATE mezzo_flags ${m_LINK})
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  mezzo_unity(${objects})
  if(m_ROOMS)
    set_target_properties(${objects} PROPERTIES UNITY_BUILD_MODE GROUP)
    foreach(source IN LISTS m_SOURCES)
      get_filename_component(unit ${source} DIRECTORY)
      string(MAKE_C_IDENTIFIER "${m_NAME}/${unit}" unit)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${unit}")
    endforeach()
  endif()
  if(m_TORCH)
    target_link_libraries(${objects} PRIVATE LibTorch::torch)
    target_precompile_headers(${objects} REUSE_FROM mezzo_module_headers)
    set_property(GLOBAL APPEND PROPERTY MEZZO_TORCH_MODULES ${objects})
  else()
    set_property(GLOBAL APPEND PROPERTY MEZZO_PLAIN_MODULES ${objects})
  endif()
  foreach(library IN LISTS m_LIBRARIES)
    set_property(GLOBAL APPEND PROPERTY MEZZO_MODULES_OF_${library} ${objects})
  endforeach()
  set_property(GLOBAL PROPERTY MEZZO_LINK_OF_${objects} "${m_LINK}")
endfunction()

# Makes a library out of modules. Consumers of a shared one see only its exported symbols; tests link the static one and see all.
function(mezzo_library name kind)
  add_library(${name} ${kind})
  foreach(module IN LISTS ARGN)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${module}>)
    get_property(link GLOBAL PROPERTY MEZZO_LINK_OF_${module})
    if(kind STREQUAL "SHARED")
      target_link_libraries(${name} PRIVATE ${link})
    else()
      target_link_libraries(${name} PUBLIC ${link})
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
endfunction()
