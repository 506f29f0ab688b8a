# Finds LibTorch without its own package file, which wants a CUDA toolkit wherever the wheel was built for CUDA.
#
# Input   LIBTORCH (cache or environment): a folder with include/ and lib/, as in the wheel's torch/ or the LibTorch archive.
# Output  LibTorch::torch       what a CPU program links: libtorch_cpu and libc10
#         LibTorch::torch_cuda  libtorch_cuda and libc10_cuda, where the folder has them
#         LibTorch_VERSION

set(LIBTORCH "$ENV{LIBTORCH}" CACHE PATH "LibTorch's folder (include/ and lib/)")
if(NOT LIBTORCH AND EXISTS "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch")
  set(LIBTORCH "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch" CACHE PATH "LibTorch's folder" FORCE)
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

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
  "Mezzo needs LibTorch 2.11 or newer. LIBTORCH is '${LIBTORCH}': ./run setup fetches one, or name a folder with include/ and lib/.")

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
  if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY)
    add_library(LibTorch::torch_cuda UNKNOWN IMPORTED)
    set_target_properties(
      LibTorch::torch_cuda
      PROPERTIES IMPORTED_LOCATION "${LibTorch_CUDA_LIBRARY}"
                 INTERFACE_LINK_LIBRARIES "${LibTorch_C10_CUDA_LIBRARY};LibTorch::torch")
  endif()
endif()
