# The compiler that is needed, and the flags of our own code (never of a consumer's).

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "mezzo needs g++ 12 or newer (C++20), found g++ ${CMAKE_CXX_COMPILER_VERSION}")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "mezzo needs clang 14 or newer (C++20), found ${CMAKE_CXX_COMPILER_VERSION}")
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(mezzo_flags INTERFACE)
target_compile_features(mezzo_flags INTERFACE cxx_std_20)
# GCC's warnings about bounds and initialisation cry wolf under its sanitizers: there they are no errors.
set(warnings_are_errors ${MEZZO_WERROR})
if(MEZZO_SANITIZE)
  set(warnings_are_errors OFF)
endif()
target_compile_options(
  mezzo_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow>
                        $<$<AND:$<BOOL:${warnings_are_errors}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
# GCC 13 and later take a reference to what a call returns for one to a temporary argument of it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(mezzo_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
endif()
# clang counts what the compiler computes: joining and sorting the operator table takes more than it allows by itself.
target_compile_options(mezzo_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fconstexpr-steps=10000000>)
if(MEZZO_SANITIZE)
  target_compile_options(mezzo_flags INTERFACE -fsanitize=${MEZZO_SANITIZE} -fno-omit-frame-pointer -g1)
  if(MEZZO_SANITIZE_NOT)
    target_compile_options(mezzo_flags INTERFACE -fno-sanitize=${MEZZO_SANITIZE_NOT})
  endif()
  target_link_options(mezzo_flags INTERFACE -fsanitize=${MEZZO_SANITIZE})
endif()
# g++ looks for garbage again and again in the gigabyte that LibTorch's headers take: a tenth of its time.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mezzo_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576;--param=ggc-min-expand=100>")
endif()

# mezzo_openmp(SOURCE...): sources that call at::parallel_for, a template that without OpenMP runs everything on one thread.
# For g++, whose OpenMP is LibTorch's. clang brings another one, whose threads would stand beside LibTorch's: one thread there.
function(mezzo_openmp)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -fopenmp SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# mezzo_unity(TARGET [SIZE]): sources of a target are compiled SIZE (8) at a time, so that the headers that all of them
# include are read once for several. Names that a source keeps to itself must therefore be unique within its target.
function(mezzo_unity target)
  set(size 8)
  if(ARGC GREATER 1)
    set(size ${ARGV1})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MEZZO_UNITY} UNITY_BUILD_BATCH_SIZE ${size})
  if(MEZZO_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ takes each source of a unit for a header, whose classes other units could see.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()
