# The program with a few steps, on Fashion-MNIST as folders; what it does with its options is in tests/examples/imagenet.
set(folder imagenet_test_data)
set(few -a resnet20 --image-size 16 -b 12 -j 2 --epochs 1 --steps 2)

mezzo_example_test(NAME imagenet_folder COMMAND fashion_mnist_folders --out ${folder} --train 96 --test 40
                   OUTPUT "wrote 96 images.*wrote 40 images")
mezzo_example_test(NAME imagenet COMMAND imagenet ${few} --checkpoint imagenet_test.safetensors ${folder} OUTPUT "O1  done: test")
mezzo_example_test(NAME imagenet_goes_on COMMAND imagenet ${few} --epochs 2 --resume imagenet_test.safetensors --checkpoint None
                                                 ${folder} OUTPUT "epoch 2/2.*O1  done: test")
mezzo_example_test(NAME imagenet_documented_command
                   COMMAND imagenet -a resnet50 --workers 4 --b 224 --opt-level O1 --loss-scale 128.0 ${folder} --image-size 16 --b 8
                           --steps 1 --epochs 1 --checkpoint None OUTPUT "O1  done: test .*scale 128")
mezzo_example_test(NAME imagenet_explains_itself COMMAND imagenet --help OUTPUT "DIR.*--batch-size, -b")
mezzo_example_test(NAME imagenet_without_folder COMMAND imagenet nowhere CODE 1 OUTPUT "'nowhere/train' is no folder")
mezzo_example_test(NAME imagenet_of_unknown_kind COMMAND imagenet -a resnet51 ${folder} CODE 2 OUTPUT "expected one of resnet18")
set(needs_folder imagenet imagenet_goes_on imagenet_documented_command imagenet_of_unknown_kind)

if(MEZZO_DISTRIBUTED)
  foreach(
    how IN
    ITEMS "O1|--opt-level;O1;--sync-bn" "O2|--opt-level;O2;--ema;0.9" "reducer|--opt-level;O2;--reducer"
          "fp16_optimizer|--how;fp16_optimizer;--dynamic-loss-scale" "masters|--how;masters;--loss-scale;8;--reducer" "handle|--how;handle")
    string(REGEX MATCH "^[^|]+" name ${how})
    string(REGEX REPLACE "^[^|]+\\|" "" flags "${how}")
    mezzo_ranks_test(NAME imagenet_in_two_processes_${name} RANKS 2 COMMAND imagenet ${few} ${flags} --checkpoint None ${folder}
                     OUTPUT "weights are equal on all 2 ranks")
    list(APPEND needs_folder imagenet_in_two_processes_${name})
  endforeach()
endif()

if(MEZZO_TESTS)
  list(TRANSFORM needs_folder PREPEND example_)
  set_tests_properties(example_imagenet_folder PROPERTIES FIXTURES_SETUP imagenet_folder)
  set_tests_properties(${needs_folder} PROPERTIES FIXTURES_REQUIRED imagenet_folder)
  set_tests_properties(example_imagenet_goes_on PROPERTIES DEPENDS example_imagenet)

  if(MEZZO_DISTRIBUTED)
    # Both ranks are stopped by the launcher's SIGTERM and go on to the bit.
    add_test(NAME example_imagenet_stops_and_goes_on
             COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:imagenet> -DMEZZO=$<TARGET_FILE:mezzo_program> -DDATA=${folder}
                     -DFOLDER=${CMAKE_CURRENT_BINARY_DIR}/stop_test -P ${CMAKE_CURRENT_SOURCE_DIR}/check_stop.cmake)
    add_test(NAME example_imagenet_averages
             COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:imagenet> -DMEZZO=$<TARGET_FILE:mezzo_program> -DDATA=${folder}
                     -DFOLDER=${CMAKE_CURRENT_BINARY_DIR}/averaging_test -P ${CMAKE_CURRENT_SOURCE_DIR}/check_averaging.cmake)
    add_test(NAME example_imagenet_under_torchrun
             COMMAND ${CMAKE_COMMAND} "-DTORCHRUN=$<$<BOOL:${MEZZO_TORCHRUN}>:${MEZZO_TORCHRUN}>" -DPROGRAM=$<TARGET_FILE:imagenet>
                     "-DARGUMENTS=-a|resnet20|--image-size|16|-b|12|--epochs|1|--steps|2|--checkpoint|None|${folder}"
                     "-DOUTPUT=weights are equal on all 2 ranks" -P ${PROJECT_SOURCE_DIR}/examples/distributed/check_torchrun.cmake)
    set_tests_properties(example_imagenet_stops_and_goes_on example_imagenet_averages example_imagenet_under_torchrun
                         PROPERTIES LABELS example TIMEOUT 300 FIXTURES_REQUIRED imagenet_folder WORKING_DIRECTORY
                                    ${CMAKE_CURRENT_BINARY_DIR} ENVIRONMENT "OMP_WAIT_POLICY=passive;GOMP_SPINCOUNT=0")
    set_tests_properties(example_imagenet_under_torchrun PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no torchrun")
  endif()

  # The nine commands as they are documented, each with one step: minutes on a few cores.
  add_test(NAME imagenet_documented_commands
           COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:imagenet> -DMEZZO=$<TARGET_FILE:mezzo_program> -DDATA=${folder} -P
                   ${CMAKE_CURRENT_SOURCE_DIR}/check_commands.cmake)
  set_tests_properties(imagenet_documented_commands PROPERTIES LABELS "slow" TIMEOUT 7200 FIXTURES_REQUIRED imagenet_folder
                                                               WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  # The demo's accuracy on the demo's images.
  add_test(NAME imagenet_accuracy
           COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:imagenet> -DFOLDERS=$<TARGET_FILE:fashion_mnist_folders>
                   -DFOLDER=${CMAKE_CURRENT_BINARY_DIR}/imagenet_clothes -P ${CMAKE_CURRENT_SOURCE_DIR}/check_accuracy.cmake)
  set_tests_properties(imagenet_accuracy PROPERTIES LABELS "slow;accuracy" TIMEOUT 7200
                                                    ENVIRONMENT "OMP_WAIT_POLICY=passive;GOMP_SPINCOUNT=0")
endif()
