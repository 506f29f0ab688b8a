# Finds LibTorch without its own package file, which wants a CUDA toolkit wherever the wheel was built for CUDA.
#
# Input   LIBTORCH (cache or environment): a folder with include/ and lib/, as in the wheel's torch/ or the LibTorch archive.
# Output  LibTorch::torch       what a CPU program links: libtorch_cpu and libc10
#         LibTorch::torch_cuda  libtorch_cuda and libc10_cuda, where the folder has them
#         LibTorch::openmp      the OpenMP library that LibTorch itself runs on: another one would have threads of its own
#         LibTorch_VERSION

if(LibTorch_FIND_VERSION)
  set(_libtorch_needed "LibTorch ${LibTorch_FIND_VERSION} or newer")
else()
  set(_libtorch_needed "LibTorch")
endif()
set(LIBTORCH "$ENV{LIBTORCH}" CACHE PATH "LibTorch's folder (include/ and lib/)")
if(NOT LIBTORCH AND EXISTS "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch")
  set(LIBTORCH "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch" CACHE PATH "LibTorch's folder" FORCE)
endif()

# Another folder than last time: forget what was found there.
if(NOT "${LIBTORCH}" STREQUAL "${_LibTorch_SEARCHED}")
  foreach(found INCLUDE_DIR CPU_LIBRARY C10_LIBRARY CUDA_LIBRARY C10_CUDA_LIBRARY)
    unset(LibTorch_${found} CACHE)
  endforeach()
  set(_LibTorch_SEARCHED "${LIBTORCH}" CACHE INTERNAL "")
endif()

find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h PATHS "${LIBTORCH}/include" NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${LIBTORCH}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS "${LIBTORCH}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS "${LIBTORCH}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS "${LIBTORCH}/lib" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY
                 LibTorch_CUDA_LIBRARY LibTorch_C10_CUDA_LIBRARY)

if(LibTorch_INCLUDE_DIR)
  foreach(header torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${LibTorch_INCLUDE_DIR}/${header}")
      file(STRINGS "${LibTorch_INCLUDE_DIR}/${header}" version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      if(version_lines)
        string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION
                             "${version_lines}")
        break()
      endif()
    endif()
  endforeach()
endif()

# One sentence: what is needed, what was found, what would help.
set(_libtorch_help "name a folder that has include/ and lib/ with LIBTORCH (a variable of CMake or of the environment)")
if(EXISTS "${PROJECT_SOURCE_DIR}/cmake/libtorch-2.11.txt")
  string(APPEND _libtorch_help ", or let ./run setup fetch one")
endif()
if(NOT LIBTORCH)
  set(_libtorch_found "no folder was named")
elseif(NOT IS_DIRECTORY "${LIBTORCH}")
  set(_libtorch_found "'${LIBTORCH}' is no folder")
elseif(NOT LibTorch_INCLUDE_DIR)
  set(_libtorch_found "'${LIBTORCH}' has no include/ATen/core/Tensor.h")
elseif(NOT LibTorch_CPU_LIBRARY OR NOT LibTorch_C10_LIBRARY)
  set(_libtorch_found "'${LIBTORCH}' has no lib/libtorch_cpu.so or no lib/libc10.so")
elseif(NOT LibTorch_VERSION)
  set(_libtorch_found "'${LIBTORCH}' does not tell its version")
elseif(LibTorch_FIND_VERSION AND LibTorch_VERSION VERSION_LESS LibTorch_FIND_VERSION)
  set(_libtorch_found "'${LIBTORCH}' is LibTorch ${LibTorch_VERSION}")
else()
  unset(_libtorch_found)
endif()
if(DEFINED _libtorch_found AND LibTorch_FIND_REQUIRED)
  message(FATAL_ERROR "mezzo needs ${_libtorch_needed}: ${_libtorch_found}; ${_libtorch_help}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::c10 UNKNOWN IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")
  add_library(LibTorch::torch UNKNOWN IMPORTED)
  set_target_properties(
    LibTorch::torch
    PROPERTIES IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES
               "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
               INTERFACE_COMPILE_FEATURES cxx_std_20
               INTERFACE_LINK_LIBRARIES LibTorch::c10
               # libtorch_cpu finds NVIDIA's run-time libraries by its own run path, at run time only.
               INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
  file(GLOB _libtorch_openmp "${LIBTORCH}/lib/libgomp*.so*")
  add_library(LibTorch::openmp INTERFACE IMPORTED)
  if(_libtorch_openmp)
    list(GET _libtorch_openmp 0 _libtorch_openmp)
    set_target_properties(LibTorch::openmp PROPERTIES INTERFACE_LINK_LIBRARIES "${_libtorch_openmp}")
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # LibTorch was built here, with the compiler's
    set_target_properties(LibTorch::openmp PROPERTIES INTERFACE_LINK_LIBRARIES gomp)
  endif()
  if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY)
    add_library(LibTorch::torch_cuda UNKNOWN IMPORTED)
    set_target_properties(
      LibTorch::torch_cuda
      PROPERTIES IMPORTED_LOCATION "${LibTorch_CUDA_LIBRARY}"
                 INTERFACE_LINK_LIBRARIES "${LibTorch_C10_CUDA_LIBRARY};LibTorch::torch"
                 # A program names nothing of it: it registers itself when it is loaded.
                 INTERFACE_LINK_OPTIONS "-Wl,--no-as-needed")
  endif()
endif()
