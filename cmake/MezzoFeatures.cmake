# Finds what this build can have beside the CPU library, and refuses with a reason what was asked for and cannot be.
#
# Output  MEZZO_NVCC           the CUDA compiler, or empty: no CUDA kernels are built
#         MEZZO_DISTRIBUTED    as asked

# Libraries that are headers and nothing else, wherever they lie.
foreach(header CLI/CLI.hpp toml++/toml.h)
  string(MAKE_C_IDENTIFIER "MEZZO_FOLDER_OF_${header}" folder)
  string(TOUPPER ${folder} folder)
  find_path(${folder} ${header})
  mark_as_advanced(${folder})
  if(NOT ${folder})
    message(FATAL_ERROR "mezzo needs the header ${header}, which is in no folder that CMake searches: install CLI11 and toml++ (Debian: "
                        "libcli11-dev, libtomlplusplus-dev), or name the folder above their include/ with CMAKE_PREFIX_PATH")
  endif()
  target_include_directories(mezzo_flags SYSTEM INTERFACE "${${folder}}")
endforeach()

set(MEZZO_NVCC_NEEDED 12.0) # the first nvcc with C++20

function(mezzo_find_nvcc)
  find_program(MEZZO_NVCC_PROGRAM nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" PATHS /usr/local/cuda/bin)
  mark_as_advanced(MEZZO_NVCC_PROGRAM)
  if(CMAKE_CUDA_COMPILER)
    set(nvcc "${CMAKE_CUDA_COMPILER}")
  elseif(DEFINED ENV{CUDACXX})
    set(nvcc "$ENV{CUDACXX}")
  elseif(MEZZO_NVCC_PROGRAM)
    set(nvcc "${MEZZO_NVCC_PROGRAM}")
  else()
    set(MEZZO_NVCC "" PARENT_SCOPE)
    set(why "no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    set(MEZZO_NVCC "" PARENT_SCOPE)
    set(why "'${nvcc}' does not run (${code})" PARENT_SCOPE)
  elseif(NOT said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(MEZZO_NVCC "" PARENT_SCOPE)
    set(why "'${nvcc}' does not tell its version" PARENT_SCOPE)
  elseif(CMAKE_MATCH_1 VERSION_LESS MEZZO_NVCC_NEEDED)
    set(MEZZO_NVCC "" PARENT_SCOPE)
    set(why "'${nvcc}' is nvcc ${CMAKE_MATCH_1}" PARENT_SCOPE)
  else()
    set(MEZZO_NVCC "${nvcc}" PARENT_SCOPE)
  endif()
endfunction()

set(MEZZO_NVCC "")
if(NOT MEZZO_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MEZZO_CUDA is '${MEZZO_CUDA}'; expected AUTO, ON or OFF")
elseif(NOT MEZZO_CUDA STREQUAL "OFF")
  mezzo_find_nvcc()
  if(NOT MEZZO_NVCC AND MEZZO_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MEZZO_CUDA=ON needs nvcc ${MEZZO_NVCC_NEEDED} or newer: ${why}; install the CUDA toolkit, name its nvcc "
                        "with CUDACXX, or build with MEZZO_CUDA=AUTO or OFF")
  elseif(NOT MEZZO_NVCC)
    message(STATUS "No CUDA kernels: ${why}")
  endif()
endif()

# Ampere and the cards that run its code (8.x), Hopper; newer ones translate its PTX when they first load it.
set(MEZZO_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "What nvcc compiles for, as CMAKE_CUDA_ARCHITECTURES")
if(MEZZO_NVCC)
  set(CMAKE_CUDA_COMPILER "${MEZZO_NVCC}")
  set(CMAKE_CUDA_ARCHITECTURES "${MEZZO_CUDA_ARCHITECTURES}")
  enable_language(CUDA)
endif()

if(MEZZO_DISTRIBUTED AND MEZZO_TORCH)
  foreach(header ProcessGroup.hpp Backend.hpp TCPStore.hpp)
    set(needed "${LibTorch_INCLUDE_DIR}/torch/csrc/distributed/c10d/${header}")
    if(NOT EXISTS "${needed}")
      message(FATAL_ERROR "MEZZO_DISTRIBUTED=ON needs a LibTorch with c10d: '${needed}' does not exist; name another "
                          "LibTorch with LIBTORCH, or build with MEZZO_DISTRIBUTED=OFF")
    endif()
  endforeach()
endif()
