# A public header that need not see torch/nn does not, and so compiles in under 5 s; prints the processor's time (syntax alone).
cmake_minimum_required(VERSION 3.25)
# The headers that hold or take modules, optimizers with modules, or checkpoints of both.
set(may_see_nn
    amp.h attention.h checkpoint.h deploy.h deploy_call.h deploy_onnx.h deploy_script.h deploy_trace.h ema.h fp16_utils.h gluon.h half_network.h
    initialize.h insight.h insight_candidates.h insight_dry_run.h insight_examples.h insight_explain.h insight_lint.h insight_shadow.h insight_watch.h
    legacy_amp.h mezzo.h model.h model_values.h nn.h parallel.h reparameterization.h rnn.h sync_batch_norm.h)
file(GLOB headers RELATIVE ${ROOT}/include ${ROOT}/include/mezzo/*.h)
foreach(header IN LISTS headers)
  cmake_path(GET header FILENAME name)
  if(name IN_LIST may_see_nn)
    continue()
  endif()
  execute_process(
    COMMAND bash -c "TIMEFORMAT=%U; time '${COMPILER}' -std=c++20 -fsyntax-only -x c++ -I '${ROOT}/include' -isystem '${LIBTORCH_INCLUDE}' \
                     -isystem '${LIBTORCH_INCLUDE}/torch/csrc/api/include' '${ROOT}/include/${header}' 2>/dev/null"
    RESULT_VARIABLE code ERROR_VARIABLE seconds)
  string(STRIP "${seconds}" seconds)
  message(STATUS "${header}: ${seconds} s")
  if(NOT code EQUAL 0)
    message(SEND_ERROR "${header} does not compile")
  endif()
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -M -w -x c++ -I ${ROOT}/include -isystem ${LIBTORCH_INCLUDE} -isystem ${LIBTORCH_INCLUDE}/torch/csrc/api/include
            ${ROOT}/include/${header}
    OUTPUT_VARIABLE seen)
  string(REGEX MATCH "[^ ]*/torch/(nn[./]|torch[.]h|all[.]h)[^ ]*" heavy "${seen}")
  if(heavy)
    message(SEND_ERROR "${header} sees ${heavy}: include less")
  endif()
endforeach()
