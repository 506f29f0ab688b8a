# Where LibTorch is looked for when nobody names it, with folders that only look like one. Arguments: ROOT, WORK.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)

# A python3 whose torch lies there.
function(fake_python path folder)
  fake_program(${path} "echo '${folder}'")
endfunction()

file(WRITE ${WORK}/project/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(finder LANGUAGES NONE)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
set(CMAKE_MODULE_PATH ${ROOT}/cmake)
find_package(LibTorch 2.11 REQUIRED)
message(STATUS \"took <\${LIBTORCH}> <\${LibTorch_VERSION}>\")
")

# asked(NAME expected [cmake options] [ENV name=value ...]): one configuring, whose output is expected.
function(asked name expected)
  cmake_parse_arguments(PARSE_ARGV 2 asked "" "" "ENV")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LIBTORCH --unset=CMAKE_PREFIX_PATH --unset=LibTorch_ROOT ${asked_ENV}
                          ${CMAKE_COMMAND} -G Ninja -S ${WORK}/project -B ${WORK}/build-${name} ${asked_UNPARSED_ARGUMENTS}
                  OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(NOT said MATCHES "${expected}")
    message(SEND_ERROR "${name}: expected /${expected}/ in: ${said}")
  endif()
endfunction()

fake_libtorch(${WORK}/named 11)
fake_libtorch(${WORK}/root 12)
fake_libtorch(${WORK}/prefix/libtorch 13)
fake_libtorch(${WORK}/beside 14)
fake_libtorch(${WORK}/site-packages/torch 15)
fake_libtorch(${WORK}/old 9)
fake_python(${WORK}/python3 ${WORK}/site-packages/torch)
fake_python(${WORK}/bare-python3 "")
set(all -DLibTorch_ROOT=${WORK}/root -DCMAKE_PREFIX_PATH=${WORK}/prefix -DLibTorch_BESIDE=${WORK}/beside -DPython3_EXECUTABLE=${WORK}/python3)

# One place after the other is taken away.
asked(named "took <[^>]*/named> <2.11.1>" -DLIBTORCH=${WORK}/named ${all})
asked(environment "took <[^>]*/named> <2.11.1>" ${all} ENV LIBTORCH=${WORK}/named)
asked(root "took <[^>]*/root> <2.12.1>" ${all})
list(POP_FRONT all)
asked(root_of_environment "took <[^>]*/root> <2.12.1>" ${all} ENV LibTorch_ROOT=${WORK}/root)
asked(package_file "took <[^>]*/root> <2.12.1>" ${all} -DTorch_DIR=${WORK}/root/share/cmake/Torch)
asked(prefix "took <[^>]*/prefix/libtorch> <2.13.1>" ${all})
list(POP_FRONT all)
asked(prefix_of_environment "took <[^>]*/prefix/libtorch> <2.13.1>" ${all} ENV CMAKE_PREFIX_PATH=/nowhere:${WORK}/prefix)
asked(beside "took <[^>]*/beside> <2.14.1>" ${all})
list(POP_FRONT all)
asked(python "took <[^>]*/site-packages/torch> <2.15.1>" ${all})

# A LibTorch that does not fit is passed over, and named in the end.
asked(passed_over "took <[^>]*/site-packages/torch> <2.15.1>" ${all} -DLibTorch_ROOT=${WORK}/old)
asked(series "took <[^>]*/beside> <2.14.1>" -DLibTorch_SERIES=2.14 -DLibTorch_ROOT=${WORK}/root -DLibTorch_BESIDE=${WORK}/beside)
asked(nowhere
      "needs LibTorch 2.11 or newer: no folder was named, and this is where it was looked for: '[^']*/old' .it is LibTorch 2.9.1., '[^']*/empty' .it is no folder., the torch of [^ ]*/bare-python3 .it has none.; name a folder that has include/ and lib/ with LIBTORCH"
      -DLibTorch_ROOT=${WORK}/old -DLibTorch_BESIDE=${WORK}/empty -DPython3_EXECUTABLE=${WORK}/bare-python3)
# A name that is wrong is not made up for by another place.
asked(wrong_name "needs LibTorch 2.11 or newer: '[^']*/empty' is no folder; name" -DLIBTORCH=${WORK}/empty ${all})

# Found again, nothing of it is remembered: the folder that was found may have gone.
asked(gone "took <[^>]*/prefix/libtorch>" -DCMAKE_PREFIX_PATH=${WORK}/prefix ${all})
file(REMOVE_RECURSE ${WORK}/prefix)
asked(gone "took <[^>]*/site-packages/torch>" ${all})
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)
