# The demo, with a few steps, and everything that can be wrong with what it is given.
set(bad ${CMAKE_CURRENT_BINARY_DIR}/bad_data)
file(MAKE_DIRECTORY ${bad}/empty ${bad}/damaged)
foreach(name train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
  file(WRITE ${bad}/damaged/${name}.gz "this is neither gzip nor IDX")
endforeach()
set(few --steps 2 --epochs 1 --batch-size 32)

mezzo_example_test(NAME demo_compares_levels COMMAND fashion_mnist --report demo_test.json ${few}
                   OUTPUT "O0 .*O1 .*O2 .*O4 .*wrote demo_test.html")
mezzo_example_test(NAME demo_has_baselines_of_speed COMMAND fashion_mnist --compare O3,O3+bn --report demo_o3_test.json ${few}
                   OUTPUT "O3 .*O3.bn ")
foreach(level O1 O2 O5)
  mezzo_example_test(NAME demo_trains_${level} COMMAND fashion_mnist --opt-level ${level} --loss-scale 128 ${few}
                     OUTPUT "${level}  done: test .*skipped, scale 128")
endforeach()
foreach(optimizer fused-sgd adam fused-adam fused-lamb fused-novograd fused-adagrad)
  mezzo_example_test(NAME demo_trains_with_${optimizer}
                     COMMAND fashion_mnist --opt-level O2 --optimizer ${optimizer} ${few} OUTPUT "O2  done: test")
endforeach()
mezzo_example_test(NAME demo_with_unknown_optimizer COMMAND fashion_mnist --optimizer sdg CODE 2 OUTPUT "expected one of sgd, ")
mezzo_example_test(NAME demo_trains_one_level COMMAND fashion_mnist --opt-level O0 --log demo_test.jsonl ${few}
                   OUTPUT "O0  done: test")
mezzo_example_test(NAME demo_watches_its_numerics COMMAND fashion_mnist --watch 1 --compare O1 --report demo_watch_test.json
                                                          ${few} OUTPUT "O1 .*wrote demo_watch_test.html")
mezzo_example_test(NAME demo_explains_itself COMMAND fashion_mnist --help OUTPUT "--opt-level")
mezzo_example_test(NAME demo_without_data COMMAND fashion_mnist --data ${bad}/empty ${few} CODE 1
                   OUTPUT "dataset-fashion-mnist")
mezzo_example_test(NAME demo_with_damaged_data COMMAND fashion_mnist --data ${bad}/damaged --opt-level O0 ${few} CODE 1
                   OUTPUT "no IDX file")
mezzo_example_test(NAME demo_with_unwritable_report COMMAND fashion_mnist --report /nowhere/report.json ${few} CODE 1
                   OUTPUT "cannot write '/nowhere/report.json'")
mezzo_example_test(NAME demo_with_unknown_option COMMAND fashion_mnist --opt-levle O0 CODE 2
                   OUTPUT "did you mean '--opt-level'")
mezzo_example_test(NAME demo_with_unknown_level COMMAND fashion_mnist --opt-level 01 CODE 2 OUTPUT "the letter O, not zero")
mezzo_example_test(NAME demo_with_unknown_level_to_compare COMMAND fashion_mnist --compare O0,O9 CODE 2 OUTPUT "'O9'")
mezzo_example_test(NAME demo_with_unknown_device COMMAND fashion_mnist --device gpu --opt-level O0 CODE 2
                   OUTPUT "--device")
mezzo_example_test(NAME demo_without_that_device COMMAND fashion_mnist --device cuda:99 --opt-level O0 ${few} CODE 1
                   OUTPUT "is not there")
mezzo_example_test(NAME demo_with_zero_epochs COMMAND fashion_mnist --epochs 0 CODE 2 OUTPUT "--epochs")
mezzo_example_test(NAME demo_with_level_and_comparison COMMAND fashion_mnist --opt-level O0 --compare O0 CODE 2
                   OUTPUT "exclude each other")
mezzo_example_test(NAME demo_with_unknown_loss_scale COMMAND fashion_mnist --opt-level O1 --loss-scale big ${few} CODE 2
                   OUTPUT "big")
mezzo_example_test(NAME demo_with_batch_norms_that_are_float_already
                   COMMAND fashion_mnist --compare O1 --keep-batchnorm-fp32 True --report demo_bn_test.json ${few} CODE 2
                   OUTPUT "level O1 was refused")
if(MEZZO_DISTRIBUTED)
  foreach(level O0 O1 O2)
    mezzo_example_test(NAME demo_in_two_processes_${level} COMMAND fashion_mnist --nproc 2 --opt-level ${level} ${few}
                       OUTPUT "weights are equal on all 2 ranks")
  endforeach()
  mezzo_example_test(NAME demo_compares_in_two_processes COMMAND fashion_mnist --nproc 2 --compare O1 --report
                                                                 demo_ranks_test.json ${few} OUTPUT "O1 .*wrote demo_ranks_test")
  mezzo_example_test(NAME demo_with_a_batch_that_cannot_be_shared COMMAND fashion_mnist --nproc 2 --opt-level O0 --steps 1
                                                                          --batch-size 31 CODE 2 OUTPUT "cannot be shared")
endif()

# The whole training from three seeds: half a point at most between the means.
if(MEZZO_TESTS)
  add_test(NAME demo_accuracy_of_three_seeds
           COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:fashion_mnist> -DLEVELS=O1,O2,O4 "-DSEEDS=1|2|3" -DPOINTS=50
                   -DFOLDER=${CMAKE_CURRENT_BINARY_DIR}/three_seeds
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_accuracy.cmake)
  set_tests_properties(demo_accuracy_of_three_seeds PROPERTIES LABELS "slow;accuracy" TIMEOUT 7200
                       ENVIRONMENT "OMP_WAIT_POLICY=passive;GOMP_SPINCOUNT=0")
endif()
