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

# An option of a command is a word of its sources: in quotes with its dashes, or without them in the examples' tables, or in ./run.
file(GLOB_RECURSE sources ${ROOT}/src/cli/*.cpp ${ROOT}/src/cli/*.h ${ROOT}/examples/*.cpp ${ROOT}/examples/*.h ${ROOT}/bench/*.cpp)
set(options)
foreach(source IN LISTS sources)
  file(STRINGS ${source} lines REGEX "\"[^\"]*--[a-z]")
  list(APPEND options ${lines})
endforeach()
file(STRINGS ${ROOT}/run lines REGEX "--[a-z]")
string(REGEX MATCHALL "--[a-z][a-z0-9-]*" options "${options} ${lines}")
file(GLOB_RECURSE sources ${ROOT}/examples/*.cpp ${ROOT}/examples/*.h)
foreach(source IN LISTS sources)
  file(STRINGS ${source} lines REGEX "\"[a-z][a-z0-9_-]*\"")
  string(REGEX MATCHALL "\"[a-z][a-z0-9_-]*\"" names "${lines}")
  string(REGEX REPLACE "\"([^\"]*)\"" "--\\1" names "${names}")
  list(APPEND options ${names})
endforeach()
list(REMOVE_DUPLICATES options)
list(JOIN options "\n" options)
file(WRITE ${WORK}/options.txt "${options}\n")

file(GLOB documents ${ROOT}/*.md ${ROOT}/docs/*.md ${ROOT}/examples/*.md ${ROOT}/python/*.md)
function(check expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C awk -f ${CMAKE_CURRENT_LIST_DIR}/check_documents.awk -v root=${ROOT} -v runs=${runs}
                          -v commands=${commands} -v columns=140 -v tree=${WORK}/tree.txt -v options=${WORK}/options.txt ${ARGN} OUTPUT_VARIABLE complaints ERROR_VARIABLE complaints RESULT_VARIABLE failed)
  if(expected STREQUAL "fine" AND failed)
    message(SEND_ERROR "${complaints}")
  elseif(NOT expected STREQUAL "fine" AND NOT complaints MATCHES "${expected}")
    message(SEND_ERROR "expected a complaint '${expected}', got '${complaints}'")
  endif()
endfunction()
check(fine ${documents})

# Every option of the program is in a document; -o goes without saying.
set(text "")
foreach(document IN LISTS documents)
  file(READ ${document} part)
  string(APPEND text "${part}")
endforeach()
file(GLOB_RECURSE sources ${ROOT}/src/cli/*.cpp ${ROOT}/src/cli/*.h)
foreach(source IN LISTS sources)
  file(STRINGS ${source} lines REGEX "add_(option|flag)\\(\"(-[a-z],)?--[a-z]")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*(--[a-z][a-z0-9-]*).*" "\\1" option "${line}")
    string(FIND "${text}" "${option}" at)
    if(at EQUAL -1 AND NOT option STREQUAL "--output")
      message(SEND_ERROR "no document names the option ${option} of ${source}")
    endif()
  endforeach()
endforeach()

# The index names every document.
file(READ ${ROOT}/docs/README.md index)
file(GLOB documents RELATIVE ${ROOT}/docs ${ROOT}/docs/*.md)
foreach(document IN LISTS documents)
  string(FIND "${index}" "](${document})" at)
  if(at EQUAL -1 AND NOT document STREQUAL "README.md")
    message(SEND_ERROR "docs/README.md does not name ${document}")
  endif()
endforeach()

# The check must find each of these mistakes, so that it cannot fall silent.
file(WRITE ${WORK}/wrong.md "# A heading\n[x](nowhere.md)\n[y](wrong.md#no-heading)\n`./run nothing`\n`mezzo nothing`\n`src/nothing.cpp`\n`no_such_thing.cpp`\n[z](wrong.md#a-heading)\nIt is. What else.\n- An entry. And more.\n- An entry.\n  `It` goes on.\n`./run test --no-such`\n`mezzo convert --nothing`\n`mezzo/nothing.h`\n")
foreach(expected "wrong.md:2: a link to nothing" "wrong.md:3: a link to no heading" "wrong.md:4: no command: ./run nothing"
                 "wrong.md:5: no command: mezzo nothing" "wrong.md:6: no such file: src/nothing.cpp" "wrong.md:7: no file of this name"
                 "wrong.md:9: a sentence that does not begin" "wrong.md:10: more than one sentence"
                 "wrong.md:12: more than one sentence" "wrong.md:13: no option: --no-such" "wrong.md:14: no option: --nothing"
                 "wrong.md:15: no such file: include/mezzo/nothing.h")
  check("${expected}" ${WORK}/wrong.md)
endforeach()
