# `cmake --install` copies the shared libraries and programs that src/ defines, the benchmarks, the public headers, and the files by which
# find_package(mezzo CONFIG) gives mezzo::mezzo and mezzo::convert, and pkg-config gives mezzo and mezzo-convert.
#
# An installed copy can be moved: run paths and package files name nothing but what lies beside them. lib/mezzo/libtorch is the LibTorch of
# a copy. `cmake --install` links the one of the build there; packages (MezzoPackage.cmake) bring none.
#
# A wheel (SKBUILD is set by scikit-build-core, see pyproject.toml) holds the program, the converter's library and nothing else. A second
# one (packaging/evaluator) holds the evaluator, beside that library.
#
# mezzo_installed is the target that builds all of it and nothing else.

if(SKBUILD AND MEZZO_TORCH)
  if(NOT LibTorch_VERSION MATCHES "^${libtorch_series}\\.")
    message(FATAL_ERROR "the wheel of the evaluator is for LibTorch ${libtorch_series}; '${LIBTORCH}' is ${LibTorch_VERSION}")
  endif()
  # No run path: the converter opens the LibTorch of the Python environment first, if it fits.
  set_target_properties(mezzo_convert_torch PROPERTIES INSTALL_RPATH "" INSTALL_RPATH_USE_LINK_PATH OFF)
  install(TARGETS mezzo_convert_torch LIBRARY DESTINATION mezzo)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${SKBUILD_METADATA_DIR}/licenses)
  return()
endif()
if(SKBUILD)
  include(MezzoManuals)
  install(PROGRAMS $<TARGET_FILE:mezzo_program> DESTINATION ${SKBUILD_SCRIPTS_DIR})
  install(FILES $<TARGET_FILE:mezzo_convert> DESTINATION mezzo RENAME libmezzo_convert.so)
  mezzo_install_manuals(${SKBUILD_DATA_DIR}/share ${SKBUILD_DATA_DIR}/share/man)
  add_custom_target(mezzo_wheel DEPENDS mezzo_program mezzo_convert mezzo_manuals)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    include(MezzoOlderGlibc)
    mezzo_for_older_glibc(mezzo_program mezzo_convert)
  endif()
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
  mezzo_install_manuals(${CMAKE_INSTALL_DATADIR} ${CMAKE_INSTALL_MANDIR})
  add_dependencies(mezzo_installed mezzo_manuals)
endif()

set(run_path "$ORIGIN" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set(LIBTORCH_FOLDER ${CMAKE_INSTALL_LIBDIR}/mezzo/libtorch)
if(MEZZO_TORCH)
  list(APPEND run_path "$ORIGIN/mezzo/libtorch/lib" "$ORIGIN/../${LIBTORCH_FOLDER}/lib")
endif()
option(MEZZO_LIBTORCH_LINK "cmake --install makes a link to the LibTorch of the build" ${MEZZO_TORCH})
if(MEZZO_TORCH AND MEZZO_LIBTORCH_LINK)
  cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH libtorch_of_build)
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${LIBTORCH_FOLDER}\")
    cmake_path(GET link PARENT_PATH folder)
    file(MAKE_DIRECTORY \"\${folder}\")
    if(IS_SYMLINK \"\${link}\" OR NOT EXISTS \"\${link}\")
      message(STATUS \"Linking: \${link}\")
      file(CREATE_LINK \"${libtorch_of_build}\" \"\${link}\" SYMBOLIC)
    endif()" COMPONENT libtorch_link)
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
                              INSTALL_DESTINATION ${package_folder} PATH_VARS LIBTORCH_FOLDER)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mezzoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mezzoConfig.cmake ${PROJECT_BINARY_DIR}/mezzoConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake DESTINATION ${package_folder})
# pkg-config's files, whose prefix is where they lie.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE libraries_below)
set(pkg_config_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${libraries_below}/pkgconfig OUTPUT_VARIABLE to_prefix)
set(pkg_config_files mezzo-convert.pc)
if(MEZZO_TORCH)
  list(APPEND pkg_config_files mezzo.pc)
endif()
foreach(file IN LISTS pkg_config_files)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${file}.in ${PROJECT_BINARY_DIR}/${file} @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${file} DESTINATION ${pkg_config_folder})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mezzo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.h)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/packaging/third_party_licences.txt
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mezzo)

include(MezzoPackage)
