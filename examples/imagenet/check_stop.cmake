# Stops a training of two processes in the middle of an epoch and goes on:
#   cmake -DPROGRAM=imagenet -DMEZZO=mezzo -DDATA=folder -DFOLDER=... -P check_stop.cmake
# The last loss, which depends on every weight, must be that of a training that was never stopped, to the last bit.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(train ${MEZZO} launch --nproc-per-node 2 --time-limit 200 --grace 60 -- ${PROGRAM} -a resnet20 --image-size 16 -b 6 -j 2 --epochs 2 -p 1
          --warmup-epochs 0 --opt-level O2 ${DATA})

function(run code)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE got OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT got EQUAL code)
    message(FATAL_ERROR "expected exit code ${code}, got ${got}: ${ARGN}")
  endif()
endfunction()

# The "loss" and "test_accuracy" of a log's last epoch, and the loss of its last step.
function(read_end out log)
  file(STRINGS ${log} steps REGEX "\"event\":\"step\"")
  file(STRINGS ${log} epochs REGEX "\"event\":\"epoch_ended\"")
  list(POP_BACK steps step)
  list(POP_BACK epochs epoch)
  string(JSON last_loss GET "${step}" loss)
  string(JSON loss GET "${epoch}" loss)
  string(JSON accuracy GET "${epoch}" test_accuracy)
  set(${out} "${last_loss} ${loss} ${accuracy}" PARENT_SCOPE)
endfunction()

run(0 ${train} --checkpoint ${FOLDER}/whole.safetensors --log ${FOLDER}/whole.jsonl)

list(JOIN train " " words)
file(WRITE ${FOLDER}/stop.sh
"${words} --checkpoint ${FOLDER}/stopped.safetensors --log ${FOLDER}/stopped.jsonl &
touch ${FOLDER}/stopped.jsonl
until [ $(wc -l <${FOLDER}/stopped.jsonl) -ge 3 ]; do sleep 0.05; done
kill -TERM $!
wait $!
")
run(143 sh ${FOLDER}/stop.sh)
if(NOT EXISTS ${FOLDER}/stopped.safetensors)
  message(FATAL_ERROR "no checkpoint was written")
endif()

run(0 ${train} --resume ${FOLDER}/stopped.safetensors --checkpoint None --log ${FOLDER}/resumed.jsonl)
read_end(whole ${FOLDER}/whole.jsonl)
read_end(resumed ${FOLDER}/resumed.jsonl)
if(NOT whole STREQUAL resumed)
  message(FATAL_ERROR "without a stop: ${whole}, resumed: ${resumed}")
endif()
