# Each case configures the project with something wrong and asks for one line that says so.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)

# refused(NAME message-regex [cmake options])
function(refused name expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LIBTORCH --unset=CUDACXX --unset=CUDA_HOME ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}
                          -B ${WORK}/${name} -DMEZZO_TESTS=OFF ${ARGN}
                  RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(code EQUAL 0)
    message(SEND_ERROR "${name}: configured, though it should not")
  elseif(NOT said MATCHES "${expected}")
    message(SEND_ERROR "${name}: expected /${expected}/ in: ${said}")
  endif()
endfunction()

set(real -DLIBTORCH=${LIBTORCH} -DCMAKE_CXX_COMPILER=${COMPILER})

fake_libtorch(${WORK}/libtorch-2.6 6)
refused(older_libtorch "needs LibTorch 2.11 or newer: '[^']*/libtorch-2.6' is LibTorch 2.6.1; .*LIBTORCH"
        -DLIBTORCH=${WORK}/libtorch-2.6 -DCMAKE_CXX_COMPILER=${COMPILER})
refused(no_such_libtorch "needs LibTorch 2.11 or newer: '[^']*/nowhere' is no folder" -DLIBTORCH=${WORK}/nowhere
        -DCMAKE_CXX_COMPILER=${COMPILER})
file(MAKE_DIRECTORY ${WORK}/empty)
refused(empty_libtorch "'[^']*/empty' has no include/ATen/core/Tensor.h" -DLIBTORCH=${WORK}/empty
        -DCMAKE_CXX_COMPILER=${COMPILER})

# A compiler that says it is older than it is.
fake_program(${WORK}/older-g++ "exec ${COMPILER} -U__GNUC__ -D__GNUC__=11 -U__GNUC_MINOR__ -D__GNUC_MINOR__=4 -Wno-builtin-macro-redefined \"$@\"")
execute_process(COMMAND ${COMPILER} --version OUTPUT_VARIABLE compiler_says)
if(compiler_says MATCHES "g\\+\\+|GCC|Free Software Foundation")
  refused(older_compiler "needs g\\+\\+ 12 or newer \\(C\\+\\+20\\), found g\\+\\+ 11.4" -DLIBTORCH=${LIBTORCH}
          -DCMAKE_CXX_COMPILER=${WORK}/older-g++)
endif()

refused(unknown_cuda_mode "MEZZO_CUDA is 'maybe'; expected AUTO, ON or OFF" ${real} -DMEZZO_CUDA=maybe)
fake_program(${WORK}/older-nvcc "echo 'Cuda compilation tools, release 11.8, V11.8.89'")
refused(older_nvcc "MEZZO_CUDA=ON needs nvcc 12.0 or newer: '[^']*/older-nvcc' is nvcc 11.8" ${real} -DMEZZO_CUDA=ON
        -DCMAKE_CUDA_COMPILER=${WORK}/older-nvcc)
refused(no_nvcc "MEZZO_CUDA=ON needs nvcc 12.0 or newer: '[^']*/no-nvcc' does not run" ${real} -DMEZZO_CUDA=ON
        -DCMAKE_CUDA_COMPILER=${WORK}/no-nvcc)

fake_libtorch(${WORK}/libtorch-without-c10d 11)
refused(no_c10d "MEZZO_DISTRIBUTED=ON needs a LibTorch with c10d: .*ProcessGroup.hpp' does not exist.*MEZZO_DISTRIBUTED=OFF"
        -DLIBTORCH=${WORK}/libtorch-without-c10d -DCMAKE_CXX_COMPILER=${COMPILER} -DMEZZO_CUDA=OFF)

# Without the distributed part everything else configures, also where LibTorch has none.
function(accepted name)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LIBTORCH --unset=CUDACXX --unset=CUDA_HOME ${CMAKE_COMMAND} -G Ninja -S ${SOURCE}
                          -B ${WORK}/${name} ${ARGN}
                  RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT code EQUAL 0)
    message(SEND_ERROR "${name}: refused, though it should not: ${said}")
    return()
  endif()
  file(READ ${WORK}/${name}/build.ninja build)
  if(build MATCHES "parallel/gloo.cpp" OR NOT build MATCHES "parallel/without_c10d.cpp")
    message(SEND_ERROR "${name}: the build still has the distributed part")
  endif()
endfunction()
accepted(without_distributed ${real} -DMEZZO_DISTRIBUTED=OFF -DMEZZO_TESTS=ON)
file(MAKE_DIRECTORY ${WORK}/libtorch-without-c10d/include/torch/csrc/api/include)
accepted(without_c10d -DLIBTORCH=${WORK}/libtorch-without-c10d -DCMAKE_CXX_COMPILER=${COMPILER} -DMEZZO_CUDA=OFF
         -DMEZZO_DISTRIBUTED=OFF -DMEZZO_TESTS=OFF)
