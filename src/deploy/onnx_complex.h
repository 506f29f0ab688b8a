// Calls with complex numbers, which ONNX's operators do not take: the rows for real numbers
// translate them, one part at a time.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {

/// The real and the imaginary part; the latter is empty if there is none.
using Parts = std::array<std::string, 2>;
enum class Part : std::uint8_t { kReal, kImaginary };

bool is_complex(const OnnxValue& value);
bool is_complex(const c10::IValue& value);
Parts parts_of(const Call& call, const OnnxValue& value);
Parts parts_of(const Call& call, std::string_view argument = "self");

/// One part of a value, if it is complex.
OnnxValue part_of(const Call& call, const OnnxValue& value, Part part);
/// The call on other operands, by the row for real numbers.
Names on_operands(const Call& call, std::vector<OnnxValue> operands);
/// The call on one part of every complex operand. With `adds`, real operands have an imaginary part
/// of zero.
Names on_part(const Call& call, Part part, bool adds = false);
/// Results whose parts are these; the real ones alone if the results are real.
Names joined(const Call& call, const Names& real, const Names& imaginary);

/// The row of an operator on complex numbers; null: there is none.
const Row* find_complex_row(std::string_view name);

}  // namespace mezzo::deploy::detail
