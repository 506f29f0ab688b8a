# Rules that a reader of one file cannot see: includes that cost everybody, platform calls outside their place, size.
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE public_headers RELATIVE ${ROOT} ${ROOT}/include/*.h)
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/*.h ${ROOT}/src/*.cpp ${ROOT}/src/*.inl ${ROOT}/src/*.cu ${ROOT}/src/*.cuh)
set(ours ${public_headers} ${sources})

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
forbidden("a path of one machine" "(^|[^A-Za-z0-9_.}])/(home|root|work|Users|mnt)/[a-z]" ${ours} ${texts} run .ci/run .ci/lint .ci/lint_groups.awk)

# A comment names its subject first. "Of", "What", "Who" and "Whose" begin sentences that a reader has to turn around.
file(GLOB_RECURSE commented RELATIVE ${ROOT} ${ROOT}/tests/*.h ${ROOT}/tests/*.cpp ${ROOT}/examples/*.h ${ROOT}/examples/*.cpp ${ROOT}/tools/*.cpp
     ${ROOT}/bench/*.h ${ROOT}/bench/*.cpp)
forbidden("a comment that does not begin with its subject" "^ *//[/!]?<? *(What|Whose|Who|Of)[ ,]" ${ours} ${commented})

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
