# The documents' links lead somewhere, the commands in them exist, and their prose is not too wide.
cmake_minimum_required(VERSION 3.25)

file(STRINGS ${ROOT}/run lines REGEX "^command_[a-z]+")
list(TRANSFORM lines REPLACE "^command_([a-z]+).*" "\\1")
list(JOIN lines " " runs)
file(STRINGS ${ROOT}/src/cli/commands.cpp lines REGEX "Command{\"[a-z]+\"")
list(TRANSFORM lines REPLACE ".*Command{\"([a-z]+)\".*" "\\1")
list(JOIN lines " " commands)
if(NOT runs MATCHES "test" OR NOT commands MATCHES "convert")
  message(FATAL_ERROR "the lists of commands could not be read: '${runs}', '${commands}'")
endif()

file(GLOB_RECURSE paths RELATIVE ${ROOT} ${ROOT}/src/* ${ROOT}/include/* ${ROOT}/tests/* ${ROOT}/tools/* ${ROOT}/bench/* ${ROOT}/cmake/* ${ROOT}/docs/*
     ${ROOT}/examples/* ${ROOT}/python/* ${ROOT}/packaging/*)
list(JOIN paths "\n" paths)
file(WRITE ${WORK}/tree.txt "${paths}\n")

file(GLOB documents ${ROOT}/*.md ${ROOT}/docs/*.md ${ROOT}/examples/*.md ${ROOT}/python/*.md)
function(check expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C awk -f ${CMAKE_CURRENT_LIST_DIR}/check_documents.awk -v root=${ROOT} -v runs=${runs}
                          -v commands=${commands} -v columns=100000 -v tree=${WORK}/tree.txt ${ARGN} OUTPUT_VARIABLE complaints ERROR_VARIABLE complaints RESULT_VARIABLE failed)
  if(expected STREQUAL "fine" AND failed)
    message(SEND_ERROR "${complaints}")
  elseif(NOT expected STREQUAL "fine" AND NOT complaints MATCHES "${expected}")
    message(SEND_ERROR "expected a complaint '${expected}', got '${complaints}'")
  endif()
endfunction()
check(fine ${documents})

# What the check must find, so that it cannot fall silent.
file(WRITE ${WORK}/wrong.md "# A heading\n[x](nowhere.md)\n[y](wrong.md#no-heading)\n`./run nothing`\n`mezzo nothing`\n`src/nothing.cpp`\n`no_such_thing.cpp`\n[z](wrong.md#a-heading)\n")
foreach(expected "wrong.md:2: a link to nothing" "wrong.md:3: a link to no heading" "wrong.md:4: no command: ./run nothing"
                 "wrong.md:5: no command: mezzo nothing" "wrong.md:6: no such file: src/nothing.cpp" "wrong.md:7: no file of this name")
  check("${expected}" ${WORK}/wrong.md)
endforeach()
