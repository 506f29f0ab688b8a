# Installs the build to a new prefix, looks at what came, and builds and runs examples/consumer against it.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)

function(run_step what)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LIBTORCH ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} failed (${code}):\n${said}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

run_step("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

file(GLOB headers RELATIVE ${SOURCE}/include ${SOURCE}/include/mezzo/*.h)
file(GLOB_RECURSE installed RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT headers STREQUAL installed)
  message(SEND_ERROR "include/ holds ${installed}, expected ${headers}")
endif()
foreach(file lib/libmezzo.so lib/cmake/mezzo/mezzoConfig.cmake lib/cmake/mezzo/FindLibTorch.cmake share/doc/mezzo/LICENSE
        share/doc/mezzo/third_party_licences.txt share/man/man1/mezzo-convert.1 share/bash-completion/completions/mezzo
        share/zsh/site-functions/_mezzo share/fish/vendor_completions.d/mezzo.fish lib/pkgconfig/mezzo.pc lib/pkgconfig/mezzo-convert.pc)
  if(NOT EXISTS ${prefix}/${file})
    message(SEND_ERROR "${file} was not installed")
  endif()
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/relocatable.cmake)
check_relocatable(${prefix} "${BUILD}|${SOURCE}|${LIBTORCH}")

# A moved copy is found as well.
file(RENAME ${prefix} ${WORK}/moved)
run_step("configuring the consumer" ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/consumer -B ${WORK}/consumer
         -DCMAKE_PREFIX_PATH=${WORK}/moved -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release)
run_step("building the consumer" ${CMAKE_COMMAND} --build ${WORK}/consumer)
run_step("running the consumer" ${WORK}/consumer/consumer)
if(NOT said MATCHES "mezzo ${VERSION}")
  message(SEND_ERROR "the consumer said '${said}', expected 'mezzo ${VERSION}'")
endif()
if(EXISTS ${WORK}/moved/bin/mezzo)
  run_step("the installed program" ${WORK}/moved/bin/mezzo --help)
  run_step("the installed program's part with LibTorch" ${WORK}/moved/bin/mezzo info)
endif()
if(EXISTS ${WORK}/moved/bin/mezzo_bench)
  run_step("the installed benchmarks" ${WORK}/moved/bin/mezzo bench layers --only "a name that no case has")
  if(NOT said MATCHES "layers: ")
    message(SEND_ERROR "the installed benchmarks said '${said}'")
  endif()
endif()

# The same by pkg-config, and the converter's library by itself.
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  set(flags "PKG_CONFIG_PATH='${WORK}/moved/lib/pkgconfig' '${PKG_CONFIG}' --cflags --libs")
  run_step("building by pkg-config" sh -c
           "'${COMPILER}' -std=c++20 '${SOURCE}/examples/consumer/main.cpp' -o '${WORK}/by_pkg_config' $(${flags} mezzo)")
  run_step("running what pkg-config built" ${WORK}/by_pkg_config)
  if(NOT said MATCHES "mezzo ${VERSION}")
    message(SEND_ERROR "built by pkg-config it said '${said}'")
  endif()
  file(WRITE ${WORK}/lists.c "#include <mezzo/convert_c.h>\n#include <stdio.h>\nint main(void) { puts(mezzo_version()); return 0; }\n")
  run_step("building C by pkg-config" sh -c "cc -x c '${WORK}/lists.c' -o '${WORK}/lists' -x none $(${flags} mezzo-convert)")
  run_step("running C" ${WORK}/lists)
  if(NOT said STREQUAL "${VERSION}\n")
    message(SEND_ERROR "the C program said '${said}', expected '${VERSION}'")
  endif()
  run_step("its version" sh -c "PKG_CONFIG_PATH='${WORK}/moved/lib/pkgconfig' '${PKG_CONFIG}' --modversion mezzo")
  if(NOT said STREQUAL "${VERSION}\n")
    message(SEND_ERROR "pkg-config has version '${said}'")
  endif()
endif()

# Without a LibTorch of its own a copy takes the one that LIBTORCH names, or that python3 holds; with neither it says where it looked.
file(REMOVE ${WORK}/moved/lib/mezzo/libtorch)
run_step("the program with LIBTORCH" LIBTORCH=${LIBTORCH} ${WORK}/moved/bin/mezzo info)
if(NOT said MATCHES "libtorch +2")
  message(SEND_ERROR "with LIBTORCH `mezzo info` said '${said}'")
endif()
run_step("configuring with LIBTORCH" LIBTORCH=${LIBTORCH} ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/consumer -B ${WORK}/named
         -DCMAKE_PREFIX_PATH=${WORK}/moved -DCMAKE_CXX_COMPILER=${COMPILER})
file(WRITE ${WORK}/bin/python3 "#!/bin/sh\necho '${LIBTORCH}'\n")
file(CHMOD ${WORK}/bin/python3 PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
run_step("the program with python3's torch" PATH=${WORK}/bin:$ENV{PATH} ${WORK}/moved/bin/mezzo info)
if(NOT said MATCHES "libtorch +2")
  message(SEND_ERROR "with python3's torch `mezzo info` said '${said}'")
endif()
run_step("configuring with python3's torch" PATH=${WORK}/bin:$ENV{PATH} ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/consumer
         -B ${WORK}/of_python -DCMAKE_PREFIX_PATH=${WORK}/moved -DCMAKE_CXX_COMPILER=${COMPILER})
file(WRITE ${WORK}/bin/python3 "#!/bin/sh\n")
file(WRITE ${WORK}/no.pt "")
set(bare ${CMAKE_COMMAND} -E env --unset=LIBTORCH PATH=${WORK}/bin:$ENV{PATH})
execute_process(COMMAND ${bare} ${WORK}/moved/bin/mezzo export ${WORK}/no.pt -o ${WORK}/no.onnx --input 1x3 OUTPUT_QUIET ERROR_VARIABLE said
                RESULT_VARIABLE code)
if(code EQUAL 0 OR NOT said MATCHES "cannot be loaded: .*libtorch.*LIBTORCH is not set, python3 has no torch")
  message(SEND_ERROR "without LibTorch the program said '${said}'")
endif()
execute_process(COMMAND ${bare} ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/consumer -B ${WORK}/none
                        -DCMAKE_PREFIX_PATH=${WORK}/moved -DCMAKE_CXX_COMPILER=${COMPILER}
                RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(code EQUAL 0 OR NOT said MATCHES
   "no folder was named, and this is where it was looked for: '[^']*/moved/lib/mezzo/libtorch' .it is no folder., the torch of [^ ]*/python3 .it has none.")
  message(SEND_ERROR "without LibTorch configuring said: ${said}")
endif()

# Another LibTorch than the one it was built with is refused by name.
file(WRITE ${WORK}/other/include/ATen/core/Tensor.h "")
file(WRITE ${WORK}/other/include/torch/headeronly/version.h
     "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n#define TORCH_VERSION_PATCH 0\n")
file(WRITE ${WORK}/other/lib/libtorch_cpu.so "")
file(WRITE ${WORK}/other/lib/libc10.so "")
execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/consumer -B ${WORK}/refused -DLIBTORCH=${WORK}/other
                        -DCMAKE_PREFIX_PATH=${WORK}/moved -DCMAKE_CXX_COMPILER=${COMPILER}
                RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(code EQUAL 0 OR NOT said MATCHES "built with LibTorch [0-9.]+, and '[^']*/other' is 2.99.0")
  message(SEND_ERROR "a foreign LibTorch was not refused by name: ${said}")
endif()
