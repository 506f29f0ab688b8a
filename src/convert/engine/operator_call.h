// Calls of single ONNX operators on dense arrays: what crosses between the evaluator and the
// library that computes them with LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convert/onnx/array.h"

namespace mezzo::convert {

/// An attribute's value; which member counts follows from the attribute.
struct AttributeValue {
  std::int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  std::vector<std::string> texts;
  Array tensor;
};

/// One node of the standard's domain, without bodies, sequences or optionals. No array is float16
/// or bfloat16: the evaluator widens what goes in and rounds what comes out.
struct OperatorCall {
  std::string_view op;
  std::int64_t opset = 0;
  std::map<std::string, AttributeValue, std::less<>> attributes;  // those that the node has
  std::vector<const Array*> inputs;                               // null: left out
  std::vector<Element> outputs;  // the wanted types; undefined: as computed, or left out
};

/// Counts the layouts of this header: a library with another one is not used.
inline constexpr int kOperatorLayout = 1;

/// The export of the library as mezzo_convert_operators(). Both sides come from one build.
struct OperatorLibrary {
  int layout;
  /// Appends one array per output. Returns what went wrong; empty: nothing.
  std::string (*run)(const OperatorCall&, std::vector<Array>*);
};

}  // namespace mezzo::convert
