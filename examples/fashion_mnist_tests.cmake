# The demo, with a few steps, and everything that can be wrong with what it is given.
set(bad ${CMAKE_CURRENT_BINARY_DIR}/bad_data)
file(MAKE_DIRECTORY ${bad}/empty ${bad}/damaged)
foreach(name train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
  file(WRITE ${bad}/damaged/${name}.gz "this is neither gzip nor IDX")
endforeach()
set(few --steps 2 --epochs 1 --batch-size 32)

mezzo_example_test(NAME demo_compares_levels COMMAND fashion_mnist --compare O0 --report demo_test.json ${few}
                   OUTPUT "wrote demo_test.html")
mezzo_example_test(NAME demo_trains_one_level COMMAND fashion_mnist --opt-level O0 --log demo_test.jsonl ${few}
                   OUTPUT "O0  done: test")
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
mezzo_example_test(NAME demo_with_zero_epochs COMMAND fashion_mnist --epochs 0 CODE 2 OUTPUT "--epochs")
mezzo_example_test(NAME demo_with_level_and_comparison COMMAND fashion_mnist --opt-level O0 --compare O0 CODE 2
                   OUTPUT "exclude each other")
