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
foreach(file lib/libmezzo.so lib/cmake/mezzo/mezzoConfig.cmake lib/cmake/mezzo/FindLibTorch.cmake share/doc/mezzo/LICENSE)
  if(NOT EXISTS ${prefix}/${file})
    message(SEND_ERROR "${file} was not installed")
  endif()
endforeach()
file(GLOB package_files ${prefix}/lib/cmake/mezzo/*.cmake)
foreach(file IN LISTS package_files)
  file(STRINGS ${file} lines REGEX "${BUILD}|${SOURCE}/(src|include)")
  if(lines)
    message(SEND_ERROR "${file} names the build: ${lines}")
  endif()
endforeach()

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
