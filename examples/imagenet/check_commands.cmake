# Runs the nine documented commands, each with one step: cmake -DPROGRAM=imagenet -DMEZZO=mezzo -DDATA=folder -P check_commands.cmake
cmake_minimum_required(VERSION 3.25)
set(launcher ${MEZZO} launch --nproc-per-node 2 --)
foreach(
  flags IN
  ITEMS "--b 128 --opt-level O0"
        "--b 224 --opt-level O3"
        "--b 224 --opt-level O3 --keep-batchnorm-fp32 True"
        "--b 224 --opt-level O1"
        "--b 224 --opt-level O1 --loss-scale 128.0"
        "launch --b 224 --opt-level O1"
        "--b 224 --opt-level O2"
        "--b 224 --opt-level O2 --loss-scale 128.0"
        "launch --b 224 --opt-level O2")
  string(REPLACE " " ";" words "${flags}")
  set(start)
  if(flags MATCHES "^launch ")
    set(start ${launcher})
    list(POP_FRONT words)
  endif()
  set(command ${start} ${PROGRAM} -a resnet50 --workers 4 ${words} ${DATA} --image-size 32 --steps 1 --epochs 1 --checkpoint None)
  execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0 OR NOT output MATCHES "done: test")
    message(FATAL_ERROR "'${flags}' ended with ${code}:\n${output}")
  endif()
  message("${flags}: done")
endforeach()
