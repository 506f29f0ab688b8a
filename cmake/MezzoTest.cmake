# mezzo_test(NAME core [TORCH] SOURCES ... [LINK targets] [LABELS labels] [TIMEOUT seconds] [COST seconds])
# COST: about how long it takes, if that is more than a quarter of a minute: the longest begin first.
#
# One GoogleTest executable per module, one ctest entry. Tests link the static library of all modules, so that they reach
# what the shared ones hide. All share one precompiled header of GoogleTest, or TORCH ones of torch/torch.h.

function(mezzo_test)
  cmake_parse_arguments(PARSE_ARGV 0 t "TORCH" "NAME;TIMEOUT;COST" "SOURCES;LINK;LABELS")
  if(t_TORCH AND NOT MEZZO_TORCH)
    return()
  endif()
  set(target mezzo_${t_NAME}_test)
  add_executable(${target} ${t_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE mezzo_flags GTest::gmock ${t_LINK})
  if(t_TORCH)
    target_link_libraries(${target} PRIVATE mezzo_internal mezzo_test_torch)
    target_precompile_headers(${target} REUSE_FROM mezzo_test_torch)
    target_compile_options(${target} PRIVATE -O0 -g0)
  else()
    target_link_libraries(${target} PRIVATE mezzo_internal_plain mezzo_test_main)
    target_precompile_headers(${target} REUSE_FROM mezzo_test_main)
    target_compile_options(${target} PRIVATE ${MEZZO_PLAIN_TEST_OPTIMIZATION})
  endif()
  mezzo_unity(${target} 6)
  add_test(NAME ${t_NAME} COMMAND ${target})
  if(NOT t_TIMEOUT)
    set(t_TIMEOUT 600)
  endif()
  set_tests_properties(${t_NAME} PROPERTIES TIMEOUT ${t_TIMEOUT} LABELS "${t_LABELS}"
                       ENVIRONMENT "OMP_WAIT_POLICY=passive;GOMP_SPINCOUNT=0"
                       WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(t_COST)
    set_tests_properties(${t_NAME} PROPERTIES COST ${t_COST})
  endif()
endfunction()

# mezzo_cuda_test(NAME optim_cuda SOURCES ...): a TORCH test of what runs the CUDA kernels: compiled for the processor
# everywhere, and on a GPU where there is one (support/cuda_places.h). All of them are built by mezzo_cuda_tests.

function(mezzo_cuda_test)
  if(MEZZO_SANITIZE OR NOT MEZZO_TORCH) # the emulation's fibers are not for sanitizers
    return()
  endif()
  mezzo_test(TORCH LABELS cuda ${ARGN})
  cmake_parse_arguments(PARSE_ARGV 0 t "" "NAME" "")
  set(target mezzo_${t_NAME}_test)
  target_compile_definitions(${target} PRIVATE MEZZO_CUDA_EMULATION="$<TARGET_FILE:mezzo_cuda_emulation>")
  add_dependencies(${target} mezzo_cuda_emulation)
  if(TARGET mezzo_cuda)
    target_compile_definitions(${target} PRIVATE MEZZO_CUDA_LIBRARY="$<TARGET_FILE:mezzo_cuda>")
    add_dependencies(${target} mezzo_cuda)
  endif()
  set_property(GLOBAL APPEND PROPERTY MEZZO_CUDA_TESTS ${target})
endfunction()
