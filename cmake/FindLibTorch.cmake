# Finds LibTorch without its own package file, which wants a CUDA toolkit wherever the wheel was built for CUDA.
#
# Input   LIBTORCH (cache or environment): a folder with include/ and lib/, as in the wheel's torch/ or the LibTorch archive.
#         Without it, in this order: LibTorch_ROOT, Torch_ROOT and Torch_DIR (variables or environment), each folder of
#         CMAKE_PREFIX_PATH and torch/ or libtorch/ in it, LibTorch_BESIDE (what a package of Mezzo brings), .deps/ of the project,
#         and the package torch of python3 (Python3_EXECUTABLE, or the first one on PATH).
#         LibTorch_SERIES: take none of those but 2.11, say; a folder that LIBTORCH names is taken as it is.
# Output  LibTorch::torch       what a CPU program links: libtorch_cpu and libc10
#         LibTorch::torch_cuda  libtorch_cuda and libc10_cuda, where the folder has them
#         LibTorch::openmp      the OpenMP library that LibTorch itself runs on: another one would have threads of its own
#         LibTorch_VERSION, and LIBTORCH as the folder that was found

if(LibTorch_SERIES)
  set(_libtorch_needed "LibTorch ${LibTorch_SERIES}")
elseif(LibTorch_FIND_VERSION)
  set(_libtorch_needed "LibTorch ${LibTorch_FIND_VERSION} or newer")
else()
  set(_libtorch_needed "LibTorch")
endif()

# The version of a folder's headers, or nothing.
function(_libtorch_version folder result)
  set(${result} "" PARENT_SCOPE)
  foreach(header torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${folder}/include/${header}")
      file(STRINGS "${folder}/include/${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      if(lines)
        string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" version "${lines}")
        set(${result} "${version}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# Says why a folder is not the LibTorch that is needed; empty: it is.
function(_libtorch_objection folder is_named result)
  _libtorch_version("${folder}" version)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" series "${version}")
  set(objection "")
  if(NOT IS_DIRECTORY "${folder}")
    set(objection "is no folder")
  elseif(NOT EXISTS "${folder}/include/ATen/core/Tensor.h")
    set(objection "has no include/ATen/core/Tensor.h")
  elseif(NOT EXISTS "${folder}/lib/libtorch_cpu.so" OR NOT EXISTS "${folder}/lib/libc10.so")
    set(objection "has no lib/libtorch_cpu.so or no lib/libc10.so")
  elseif(NOT version)
    set(objection "does not tell its version")
  elseif(LibTorch_FIND_VERSION AND version VERSION_LESS LibTorch_FIND_VERSION)
    set(objection "is LibTorch ${version}")
  elseif(LibTorch_SERIES AND NOT is_named AND NOT series STREQUAL LibTorch_SERIES)
    set(objection "is LibTorch ${version}")
  endif()
  set(${result} "${objection}" PARENT_SCOPE)
endfunction()

# The folders in which LibTorch is looked for where none is named.
function(_libtorch_places result)
  set(places)
  foreach(name LibTorch_ROOT Torch_ROOT)
    list(APPEND places ${${name}} $ENV{${name}})
  endforeach()
  foreach(folder ${Torch_DIR} $ENV{Torch_DIR}) # share/cmake/Torch
    cmake_path(SET folder NORMALIZE "${folder}/../../..")
    string(REGEX REPLACE "/$" "" folder "${folder}")
    list(APPEND places "${folder}")
  endforeach()
  string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH prefixes)
    foreach(folder "${prefix}" "${prefix}/torch" "${prefix}/libtorch")
      if(EXISTS "${folder}/lib/libtorch_cpu.so" OR EXISTS "${folder}/include/ATen")
        list(APPEND places "${folder}")
      endif()
    endforeach()
  endforeach()
  list(APPEND places ${LibTorch_BESIDE})
  if(EXISTS "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch")
    list(APPEND places "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch")
  endif()
  set(${result} "${places}" PARENT_SCOPE)
endfunction()

# The folder of python3's torch, which is not imported; nothing, and why, where it has none.
function(_libtorch_of_python result why)
  set(${result} "" PARENT_SCOPE)
  set(python "${Python3_EXECUTABLE}")
  if(NOT python)
    find_program(LibTorch_PYTHON python3)
    mark_as_advanced(LibTorch_PYTHON)
    set(python "${LibTorch_PYTHON}")
  endif()
  if(NOT python)
    set(${why} "the torch of python3 (there is no python3)" PARENT_SCOPE)
    return()
  endif()
  set(ask "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')")
  execute_process(COMMAND "${python}" -c "${ask}" OUTPUT_VARIABLE folder ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(folder)
    set(${result} "${folder}" PARENT_SCOPE)
  else()
    set(${why} "the torch of ${python} (it has none)" PARENT_SCOPE)
  endif()
endfunction()

set(LIBTORCH "$ENV{LIBTORCH}" CACHE PATH "LibTorch's folder (include/ and lib/)")
unset(_libtorch_found)
if(LIBTORCH)
  _libtorch_objection("${LIBTORCH}" TRUE _libtorch_found)
  if(_libtorch_found)
    string(PREPEND _libtorch_found "'${LIBTORCH}' ")
  endif()
else()
  set(_libtorch_looked)
  _libtorch_places(_libtorch_all)
  foreach(_libtorch_place IN LISTS _libtorch_all ITEMS python)
    if(_libtorch_place STREQUAL "python")
      _libtorch_of_python(_libtorch_place _libtorch_why)
      if(NOT _libtorch_place)
        list(APPEND _libtorch_looked "${_libtorch_why}")
        break()
      endif()
    endif()
    _libtorch_objection("${_libtorch_place}" FALSE _libtorch_why)
    if(NOT _libtorch_why)
      set(LIBTORCH "${_libtorch_place}")
      break()
    endif()
    list(APPEND _libtorch_looked "'${_libtorch_place}' (it ${_libtorch_why})")
  endforeach()
  if(NOT LIBTORCH)
    list(JOIN _libtorch_looked ", " _libtorch_looked)
    set(_libtorch_found "no folder was named, and this is where it was looked for: ${_libtorch_looked}")
  endif()
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
  _libtorch_version("${LIBTORCH}" LibTorch_VERSION)
endif()

# One sentence: what is needed, what was found, what would help.
if(_libtorch_found AND LibTorch_FIND_REQUIRED)
  set(_libtorch_help "name a folder that has include/ and lib/ with LIBTORCH (a variable of CMake or of the environment)")
  if(EXISTS "${PROJECT_SOURCE_DIR}/cmake/libtorch-2.11.txt")
    string(APPEND _libtorch_help ", or let ./run setup fetch one")
  endif()
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
