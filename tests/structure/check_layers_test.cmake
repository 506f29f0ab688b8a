# The layer check itself, on a small tree: what may be included passes, and what climbs fails.
#   cmake -DROOT=... -DWORK=... -P check_layers_test.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})

# verdict(NAME LINE FILE RESULT): is the tree accepted when FILE has that line?
function(verdict name file line wanted)
  set(tree ${WORK}/${name})
  file(WRITE ${tree}/src/convert/convert.cpp "#include \"convert/report/plan.h\"\n#include \"convert/onnx/wire.h\"\n#include \"core/raise.h\"\n")
  file(WRITE ${tree}/src/convert/onnx/wire.cpp "#include \"convert/onnx/wire.h\"\n")
  file(WRITE ${tree}/src/convert/report/plan.cpp "#include \"convert/onnx/wire.h\"\n#include \"convert/report/plan.h\"\n")
  file(WRITE ${tree}/src/convert/report/html/page.cpp "#include \"convert/report/plan.h\"\n")
  file(WRITE ${tree}/src/report/html.cpp "#include \"report/html.h\"\n")
  file(APPEND ${tree}/${file} "${line}\n")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -DROOT=${tree} "-DLAYERS=core::|convert:core:|report:core:"
            "-DROOMS=convert/onnx:|convert/report:onnx|convert/report/html:report" -P ${ROOT}/cmake/check_layers.cmake
    RESULT_VARIABLE result
    ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  if(wanted STREQUAL "passes" AND NOT result EQUAL 0)
    message(SEND_ERROR "${name}: refused: ${errors}")
  elseif(NOT wanted STREQUAL "passes" AND (result EQUAL 0 OR NOT errors MATCHES "${wanted}"))
    message(SEND_ERROR "${name}: accepted, or for another reason: ${errors}")
  endif()
endfunction()

verdict(as_declared src/convert/onnx/wire.cpp "" passes)
verdict(module_climbs src/report/html.cpp "#include \"convert/onnx/wire.h\"" "report may not include")
verdict(room_climbs src/convert/onnx/wire.cpp "#include \"convert/report/plan.h\"" "convert/onnx may not include")
verdict(inner_room_is_another src/convert/report/plan.cpp "#include \"convert/report/html/page.h\"" "convert/report may not include")
verdict(inner_room_keeps_to_its_own src/convert/report/html/page.cpp "#include \"convert/onnx/wire.h\"" "convert/report/html may not include")
verdict(upstairs_is_closed src/convert/report/plan.cpp "#include \"convert/convert.h\"" "convert/report may not include")
verdict(room_named_like_a_module src/convert/report/plan.cpp "#include \"report/html.h\"" "convert may not include report")
verdict(undeclared_room src/convert/judge/judge.cpp "#include \"convert/onnx/wire.h\"" "is no room of convert")
