// How the parts of the operator table are written down.
#pragma once

#include "operators/operators.h"

namespace mezzo::rows {

using enum CastClass;

inline constexpr std::string_view kOneTensor = "one tensor argument: nothing to promote";
inline constexpr std::string_view kDtypeGiven = "the caller names the dtype";

/// The lists of Apex, MXNet (1.9, else 2.x), LibTorch for CUDA and LibTorch for CPU, one letter
/// each: l low, f float, p promote, c conditional, b banned, n neutral, - not listed.
using Listed = const char (&)[kSystemCount + 1];

consteval std::optional<CastClass> class_of_letter(char letter) {
  switch (letter) {
    case 'l':
      return kLow;
    case 'f':
      return kFloat;
    case 'p':
      return kPromote;
    case 'c':
      return kConditional;
    case 'b':
      return kBanned;
    case 'n':
      return kNeutral;
    case '-':
      return std::nullopt;
    default:
      throw "a letter that is no class";
  }
}

/// A row with a class of its own for each low type, in the order of their columns.
consteval Operator row(std::string_view name, const std::array<CastClass, kLowTypeCount>& classes,
                       Listed listed, std::string_view why) {
  Operator op{.name = name, .classes = classes, .why = why};
  for (std::size_t i = 0; i < kSystemCount; ++i) op.listed[i] = class_of_letter(listed[i]);
  return op;
}

/// A row with one class for every low type.
consteval Operator row(std::string_view name, CastClass all, Listed listed, std::string_view why) {
  std::array<CastClass, kLowTypeCount> classes{};
  classes.fill(all);
  return row(name, classes, listed, why);
}

/// A row with one class for float16 and another for bfloat16.
consteval Operator row(std::string_view name, CastClass half, CastClass bfloat16, Listed listed,
                       std::string_view why) {
  static_assert(kLowTypeCount == 2, "these rows name a class for each low type");
  return row(name, std::array{half, bfloat16}, listed, why);
}

/// Sums of products: emulated where the processor has no arithmetic of the low type.
consteval Operator matrix(Operator op) {
  op.matrix = true;
  return op;
}

/// LibTorch's type promotion does it already.
consteval Operator native(Operator op) {
  op.native_promotion = true;
  return op;
}

/// Marks an operator whose inner calls are not cast either.
consteval Operator alone(Operator op) {
  op.alone = true;
  return op;
}

/// The arguments behind the input stay as they are in every class.
consteval Operator input_only(Operator op) {
  op.input_only = true;
  return op;
}

/// No 16-bit kernel for processors: runs in float at every level.
consteval Operator lacks_low(Operator op) {
  op.lacks_low = true;
  return op;
}

/// Throws if its floating arguments differ in type.
consteval Operator one_type(Operator op) {
  op.one_type = true;
  return op;
}

consteval Operator float_statistics(Operator op) {
  op.float_statistics = true;
  return op;
}

/// Its running statistics are written in place.
consteval Operator updates_statistics(Operator op) {
  op.updates_statistics = true;
  return op;
}

/// A scalar or 0-dimensional tensor that the low type cannot hold makes it run in float.
consteval Operator guarded(Operator op) {
  op.guards_scalars = true;
  return op;
}

/// It, or its derivative, adds up values in the type of its tensors.
consteval Operator sums(Operator op) {
  op.sums = true;
  return op;
}

/// Its derivative adds up gradients in the type that they come in.
consteval Operator sums_gradients(Operator op) {
  op.sums_gradients = true;
  return op;
}

/// Its derivative leaves 16 bits where its value does not.
consteval Operator steep(Operator op) {
  op.steep.fill(true);
  return op;
}

/// As above, but bfloat16 has the range.
consteval Operator steep_in_half(Operator op) {
  op.steep[static_cast<std::size_t>(row_of(DType::kFloat16).low_column)] = true;
  return op;
}

consteval Operator by_dtype(Operator op) {
  op.float_by = FloatBy::kDtypeArgument;
  return op;
}

consteval Operator by_append(Operator op) {
  op.float_by = FloatBy::kAppendDtype;
  return op;
}

}  // namespace mezzo::rows
