# Rules that a reader of one file cannot see: includes that cost everybody, platform calls outside their place, size.
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE public_headers RELATIVE ${ROOT} ${ROOT}/include/*.h)
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/*.h ${ROOT}/src/*.cpp ${ROOT}/src/*.inl ${ROOT}/src/*.cu ${ROOT}/src/*.cuh)
set(ours ${public_headers} ${sources})

foreach(list public_headers sources)
  list(LENGTH ${list} count)
  if(count LESS 50)
    message(FATAL_ERROR "${count} ${list} under ${ROOT}: nothing would be looked at")
  endif()
endforeach()

# forbidden(REASON REGEX files...): no line of these files matches.
function(forbidden reason regex)
  foreach(file IN LISTS ARGN)
    file(STRINGS ${ROOT}/${file} lines REGEX "${regex}")
    foreach(line IN LISTS lines)
      message(SEND_ERROR "${file}: ${reason}: ${line}")
    endforeach()
  endforeach()
endfunction()

forbidden("LibTorch's umbrella headers cost 15-40 s a file" "^ *# *include *[<\"](torch/(torch|all|script|nn)\\.h|ATen/(ATen|Functions)\\.h)"
          ${sources})
forbidden("LibTorch's umbrella headers cost every user 15-40 s" "^ *# *include *[<\"](torch/(torch|all|script)\\.h|ATen/(ATen|Functions)\\.h)"
          ${public_headers})

set(posix "^ *# *include *<(unistd|fcntl|dlfcn|pthread|signal|poll|sched|netdb|spawn|sys/[a-z]+|netinet/[a-z]+|arpa/[a-z]+)\\.h>")
forbidden("the operating system is asked in src/platform alone" "${posix}" ${public_headers})
set(portable ${sources})
list(FILTER portable EXCLUDE REGEX "^src/platform/")
forbidden("the operating system is asked in src/platform alone" "${posix}" ${portable})

set(library ${ours})
list(FILTER library EXCLUDE REGEX "^src/cli/")
set(silent ${library})
list(REMOVE_ITEM silent src/core/messages.cpp         # the default place of messages is standard error
                        src/platform/process.cpp) # children that it forks end there
forbidden("the library is silent and does not end its program"
          "(^|[^a-z_:])(std::)?((cout|cerr|clog) *<<|(v?f?printf|f?puts|f?putc|putchar|perror|abort|_?[eE]xit|quick_exit|terminate) *\\()" ${silent})
set(unconfigured ${library})
list(FILTER unconfigured EXCLUDE REGEX "^src/(platform|parallel)/")
forbidden("the library has no configuration by environment variables" "(^|[^a-z_])(secure_)?getenv *\\(" ${unconfigured})
set(behind_the_door ${ours})
list(REMOVE_ITEM behind_the_door src/core/torch.h)
forbidden("differences between LibTorch's versions stand in src/core/torch.h" "TORCH_VERSION_(MAJOR|MINOR)" ${behind_the_door})
forbidden("a namespace is not opened for everyone in a header" "^using namespace " ${public_headers})

# The tree names no place that exists on one machine only.
file(GLOB_RECURSE texts RELATIVE ${ROOT} ${ROOT}/*.md ${ROOT}/*.cmake ${ROOT}/CMakeLists.txt ${ROOT}/examples/*.cpp ${ROOT}/bench/*.cpp
     ${ROOT}/tests/*.cpp)
list(FILTER texts EXCLUDE REGEX "^(build|out|dist|\\.deps)/")
forbidden("a path of one machine" "(^|[^A-Za-z0-9_.}])/(home|root|work|Users|mnt)/[a-z]" ${ours} ${texts} run .ci/run .ci/rehearse-gpu .ci/lint .ci/lint_groups.awk)

# A sentence of a comment names its subject first. "Of", "What", "Who" and "Whose" begin sentences that a reader has to turn around.
set(turned "(What|Whose|Who|Of)[ ,]")
set(turned_in_slashes "(^|[ ;{}])//[/!]?<? *(.*[.!?] )?${turned}")
set(turned_in_hashes "(^|[ \t])#+ *([^\"']*[.!?] )?${turned}|^ *\"\"\"(.*[.!?] )?${turned}")
file(GLOB_RECURSE slashes RELATIVE ${ROOT} ${ROOT}/tests/*.h ${ROOT}/tests/*.cpp ${ROOT}/tests/*.cu ${ROOT}/examples/*.h ${ROOT}/examples/*.cpp
     ${ROOT}/tools/*.cpp ${ROOT}/bench/*.h ${ROOT}/bench/*.cpp)
file(GLOB_RECURSE hashes RELATIVE ${ROOT} ${ROOT}/*.cmake ${ROOT}/*.cmake.in ${ROOT}/CMakeLists.txt ${ROOT}/*.py ${ROOT}/*.awk ${ROOT}/*.toml)
list(FILTER hashes EXCLUDE REGEX "^(build|out|dist|\\.deps)/")
list(APPEND hashes run .ci/rehearse-gpu .ci/run .ci/lint .ci/release .ci/compare-abi .ci/minimal-debian tests/packages/install_deb tests/packages/install_wheel)
set(reason "a sentence that does not begin with its subject")
forbidden("${reason}" "${turned_in_slashes}" ${ours} ${slashes})
forbidden("${reason}" "${turned_in_hashes}" ${hashes})
# The rule finds each of these, and passes the others, so that it cannot fall silent.
foreach(line "// What it is." "/// Of two." "  int a;  ///< Who asks." "// Before. Whose it was." "//! It is so. What else.")
  if(NOT line MATCHES "${turned_in_slashes}")
    message(SEND_ERROR "not found: ${line}")
  endif()
endforeach()
set(hash "#")
foreach(line "${hash} What it is." "  local a ${hash} Of two." "${hash} Before. Whose it was." "  \"\"\"What it is.\"\"\"")
  if(NOT line MATCHES "${turned_in_hashes}")
    message(SEND_ERROR "not found: ${line}")
  endif()
endforeach()
foreach(line "// It says what it is." "std::string a = \"What it is\";" "# Offered." "echo \"What it is\"")
  if(line MATCHES "${turned_in_slashes}" OR line MATCHES "${turned_in_hashes}")
    message(SEND_ERROR "not wrong: ${line}")
  endif()
endforeach()

# One concept a file. Tables may be longer: they say so in their name.
set(limit 400)
list(FILTER sources EXCLUDE REGEX "(_table|_rows)\\.(cpp|h|inl)$")
foreach(file IN LISTS public_headers sources)
  file(STRINGS ${ROOT}/${file} lines)
  list(LENGTH lines length)
  if(length GREATER limit)
    message(SEND_ERROR "${file} has ${length} lines, the limit is ${limit}: split it by concept")
  endif()
endforeach()
