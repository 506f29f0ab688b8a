# Trains in two processes in three ways of averaging over them:
#   cmake -DPROGRAM=imagenet -DMEZZO=mezzo -DDATA=folder -DFOLDER=... -P check_averaging.cmake
# Batch norms over both processes' images are another training. A Reducer takes the same averages as DistributedDataParallel.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

# The loss of the last step and the epoch's, which depend on every weight.
function(train out)
  execute_process(
    COMMAND ${MEZZO} launch --nproc-per-node 2 --time-limit 200 -- ${PROGRAM} -a resnet20 --image-size 16 -b 6 -j 1 --epochs 1 --steps 4
            -p 1 --warmup-epochs 0 --opt-level O0 ${ARGN} --checkpoint None --log ${FOLDER}/${out}.jsonl ${DATA}
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${out}: exit code ${code}")
  endif()
  file(STRINGS ${FOLDER}/${out}.jsonl steps REGEX "\"event\":\"step\"")
  file(STRINGS ${FOLDER}/${out}.jsonl epochs REGEX "\"event\":\"epoch_ended\"")
  list(POP_BACK steps step)
  list(POP_BACK epochs epoch)
  string(JSON last_loss GET "${step}" loss)
  string(JSON loss GET "${epoch}" loss)
  set(${out} "${last_loss} ${loss}" PARENT_SCOPE)
endfunction()

train(plain)
train(synchronised --sync-bn)
train(reduced --reducer)
if(synchronised STREQUAL plain)
  message(FATAL_ERROR "--sync-bn changes nothing: ${plain}")
endif()
if(NOT reduced STREQUAL plain)
  message(FATAL_ERROR "--reducer: ${reduced}, without it: ${plain}")
endif()
