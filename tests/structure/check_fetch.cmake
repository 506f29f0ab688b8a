# Arguments: ROOT, WORK (a folder that may be written). Fetching LibTorch without a network, and one that is interrupted: an
# error that says so, and nothing is left that the next try could take for LibTorch.

execute_process(COMMAND uname -sm OUTPUT_VARIABLE system OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT system STREQUAL "Linux x86_64")
  message(STATUS "skipped: nothing is fetched for ${system}")
  return()
endif()
file(REMOVE_RECURSE ${WORK})
file(COPY ${ROOT}/run ${ROOT}/cmake DESTINATION ${WORK})

# expect_nothing_kept(CODE TEXT COMMAND...): the command in WORK, by a pip that knows no other index than what it is told.
function(expect_nothing_kept expected text)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LIBTORCH PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= PIP_EXTRA_INDEX_URL= PIP_RETRIES=0 NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
                          ${ARGN} WORKING_DIRECTORY ${WORK} OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE code)
  if(NOT code EQUAL expected OR NOT said MATCHES "${text}")
    message(SEND_ERROR "'${ARGN}' ends with ${code}, not ${expected}, and does not say '${text}': ${said}")
  endif()
  file(GLOB kept ${WORK}/.deps/libtorch* ${WORK}/.deps/fetching*)
  if(kept)
    message(SEND_ERROR "'${ARGN}' left ${kept}")
  endif()
endfunction()

foreach(try RANGE 1) # the second one finds nothing of the first
  expect_nothing_kept(1 "run: cannot fetch LibTorch: .*is the network there. the next try starts anew.*LIBTORCH=/path" PIP_NO_INDEX=1
                      ./run setup)
endforeach()

# A server that takes the connection and never answers.
file(WRITE ${WORK}/silent.sh [[
exec 3< <(python3 -c 'import socket, time
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
print(server.getsockname()[1], flush=True)
time.sleep(60)')
silent=$!
trap 'kill $silent' EXIT
read -r port <&3
PIP_INDEX_URL=http://127.0.0.1:$port/simple timeout --preserve-status --signal TERM 5 ./run setup
]])
expect_nothing_kept(143 "run: interrupted, nothing was kept" bash silent.sh)
file(REMOVE_RECURSE ${WORK})
