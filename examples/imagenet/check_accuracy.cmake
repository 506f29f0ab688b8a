# Trains on Fashion-MNIST as folders of JPEGs: cmake -DPROGRAM=imagenet -DFOLDERS=fashion_mnist_folders -DFOLDER=... -P check_accuracy.cmake
# The test accuracy must reach that of the demo's three epochs. Random crops and flips make the images harder to learn, so this takes six.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${FOLDERS} --out ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} -a resnet20 --image-size 28 --resize 28 --min-crop 0.8 -b 128 --lr 0.2 --epochs 6 --warmup-epochs 1
                        --lr-epochs 4 --opt-level O4 --checkpoint None ${FOLDER} RESULT_VARIABLE code OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
message("${output}")
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the training ended with code ${code}")
endif()
if(NOT output MATCHES "done: test 9[1-9]\\.")
  message(FATAL_ERROR "the test accuracy is below 91 %")
endif()
