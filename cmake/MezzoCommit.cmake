# Which commit is built, and with which LibTorch, for `mezzo --version`: a header in the build folder, written while configuring.
#
# A checkout says its commit by git and is configured anew when that changes; an archive of git has it in cmake/commit.txt;
# a plain copy of the files does not know it.

set(commit "")
find_package(Git QUIET)
if(Git_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE moves ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  cmake_path(ABSOLUTE_PATH moves BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(EXISTS ${moves})
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${moves})
  endif()
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/commit.txt commit LIMIT_COUNT 1)
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "unknown")
endif()
set(libtorch "none")
if(MEZZO_TORCH)
  set(libtorch "${LibTorch_VERSION}")
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/cli/configured.h CONTENT
     "// Written while configuring, see cmake/MezzoCommit.cmake.
#pragma once

#define MEZZO_COMMIT \"@commit@\"
#define MEZZO_BUILT_WITH_LIBTORCH \"@libtorch@\"
" @ONLY)
