// Everything that a dry run measures.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/torch.h"
#include "mezzo/insight_dry_run.h"

namespace mezzo::insight::detail {

/// The types that a dry run looks at, with their numbers.
struct TargetType {
  at::ScalarType type;
  std::string_view name;
  double largest;
  double rounding;  // half of the distance from 1 to the next number
  bool is_float8;
};
inline constexpr std::array<TargetType, 4> kTargets{{
    {at::kHalf, "float16", 65504, 1.0 / 2048, false},
    {at::kBFloat16, "bfloat16", 3.3895e38, 1.0 / 256, false},
    {at::ScalarType::Float8_e4m3fn, "float8_e4m3fn", 448, 1.0 / 16, true},
    {at::ScalarType::Float8_e5m2, "float8_e5m2", 57344, 1.0 / 8, true},
}};

/// An operator that errs by more of its type's roundings than this should stay float.
inline constexpr double kMostRoundings = 32;

/// The place of a type among the targets. ConfigError from `where` for another type.
std::size_t place_of_target(at::ScalarType type, std::string_view where);

/// An operator call in one target type.
struct TargetMeasure {
  bool measured = false;
  bool fits = true;  // neither beyond the range, nor more than kMostRoundings off
  // Calls whose low results this one cannot bear, however it computes itself.
  std::vector<std::size_t> feeders = {};
  double own = 0;       // error of the results; see OperatorError
  double backward = 0;  // the same of the gradients, with the advised loss scale
  double seconds = 0;   // forward and backward
  std::int64_t bytes = 0;
};

/// One operator call of the step, over all steps.
struct DryCall {
  std::string overload;  // "softmax.int"
  bool is_product = false;
  Operator forward;
  bool has_backward = false;
  Operator backward;
  double seconds = 0;  // in float
  std::int64_t bytes = 0;
  std::array<TargetMeasure, kTargets.size()> targets;
};

struct DryFindings {
  int steps = 0;
  double largest_gradient = 0;  // of all that reach an operator or leave one
  std::vector<DryCall> calls;
  std::vector<Operator> ranges;
  std::vector<OddSize> odd_sizes;
};

/// The loss scale for a type's range: see AdvisedPolicy::loss_scale.
double scale_for(double largest_gradient, const TargetType& target);

}  // namespace mezzo::insight::detail
