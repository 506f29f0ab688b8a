# The real torchrun starts a program:
#   cmake -DTORCHRUN=/path/or/empty -DPROGRAM=... ["-DARGUMENTS=a|b"] [-DOUTPUT=regex] -P check_torchrun.cmake
if(NOT TORCHRUN)
  message("skipped: no torchrun on PATH; pip install torch brings it, and MEZZO_TORCHRUN=/path names one")
  return()
endif()
if(NOT OUTPUT)
  set(OUTPUT "I am rank 1 of 2.*the sum over all ranks is 3")
endif()
string(REPLACE "|" ";" arguments "${ARGUMENTS}")
foreach(how --standalone "--rdzv-backend;c10d;--rdzv-endpoint;127.0.0.1:0")
  execute_process(COMMAND ${TORCHRUN} --no-python --nproc-per-node 2 ${how} ${PROGRAM} ${arguments} RESULT_VARIABLE code
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0 OR NOT output MATCHES "${OUTPUT}")
    message(FATAL_ERROR "torchrun ${how} ended with ${code}:\n${output}")
  endif()
endforeach()
