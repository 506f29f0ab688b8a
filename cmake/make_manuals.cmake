# Runs PROGRAM to write its completions and man pages below TO.
cmake_minimum_required(VERSION 3.25)

function(ask result)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${said}" PARENT_SCOPE)
endfunction()

function(write_page name)
  execute_process(COMMAND ${PROGRAM} ${ARGN} --help
                  COMMAND awk -v name=${name} -v version=${VERSION} -f ${CMAKE_CURRENT_LIST_DIR}/manual.awk
                  OUTPUT_FILE ${TO}/man1/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${TO})
file(MAKE_DIRECTORY ${TO}/man1)
foreach(shell bash zsh fish)
  ask(script completions ${shell})
  file(WRITE ${TO}/mezzo.${shell} "${script}")
endforeach()
write_page(mezzo)
ask(help --help)
string(REGEX REPLACE "^.*\nSubcommands:\n" "" rows "${help}")
string(REGEX MATCHALL "(^|\n)  [a-z]+" rows "${rows}")
foreach(row IN LISTS rows)
  string(STRIP "${row}" command)
  write_page(mezzo-${command} ${command})
endforeach()
file(TOUCH ${TO}/done)
