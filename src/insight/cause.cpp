#include "insight/cause.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/scalar_type.h"
#include "insight/unobserved.h"

namespace mezzo::insight {

namespace {

/// Weights beyond this may be what an operator cannot bear.
constexpr double kExploded = 1e4;

double magnitude_of(const at::Tensor& weight) {
  const Unobserved unobserved;
  return largest_magnitude(range_of(weight.detach()));
}

double largest_value(at::ScalarType type) {
  const DTypeRow* const row = row_of(type);
  return row != nullptr && row->is_float ? row->largest : std::numeric_limits<float>::max();
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// Without the mark of in-place operators, and the namespace of special functions.
std::string_view plain(std::string_view name) {
  if (name.starts_with("special_")) name.remove_prefix(8);
  if (name.ends_with('_') && !name.starts_with('_')) name.remove_suffix(1);
  return name;
}

bool has_zero(const InnerCall& call, std::size_t input) {
  return input < call.inputs.size() && call.inputs[input].zeros > 0;
}

bool is_constant(const InnerCall& call) {
  return !call.inputs.empty() && call.inputs[0].min == call.inputs[0].max;
}

Cause cause_of_division(const InnerCall& call, std::string_view name) {
  if (name == "rsqrt" || name == "reciprocal") {
    if (has_zero(call, 0)) return Cause::kDivisionByZero;
    return call.output.infs > 0 ? Cause::kOverflow : Cause::kInvalid;
  }
  const std::size_t divisor = name == "addcdiv" ? 2 : 1;
  const bool by_scalar = std::ranges::find(call.scalars, 0.0) != call.scalars.end();
  return has_zero(call, divisor) || by_scalar ? Cause::kDivisionByZero : Cause::kOverflow;
}

Cause cause_of_power(const InnerCall& call) {
  // A base that is a number leaves one tensor, the exponents.
  const bool is_number = call.inputs.size() == 1 && !call.scalars.empty();
  const bool zero_number = is_number && call.scalars.front() == 0 && call.inputs[0].min < 0;
  const bool negative = std::ranges::any_of(call.scalars, [](double value) { return value < 0; }) ||
                        (call.inputs.size() > 1 && call.inputs[1].min < 0);
  if (zero_number || (has_zero(call, 0) && negative)) return Cause::kDivisionByZero;
  return call.output.infs > 0 ? Cause::kOverflow : Cause::kInvalid;
}

/// By the operator that went wrong, and what it was given.
Cause cause_of(const InnerCall& call) {
  const std::string_view name = plain(call.name);
  const TensorRange& output = call.output;
  if (is_one_of(name, {"log", "log2", "log10", "log1p", "xlogy", "xlog1py", "logit", "entr"}))
    return output.infs > 0 ? Cause::kLogOfZero : Cause::kInvalid;
  if (is_one_of(name, {"div", "divide", "true_divide", "floor_divide", "remainder", "fmod",
                       "reciprocal", "rsqrt", "addcdiv"}))
    return cause_of_division(call, name);
  if (name == "pow" || name == "float_power") return cause_of_power(call);
  if (name == "atanh" && output.infs > 0) return Cause::kDivisionByZero;
  if (is_one_of(name, {"sqrt", "acos", "asin", "acosh", "atanh", "erfinv", "ndtri"}))
    return Cause::kInvalid;
  if (is_one_of(name, {"mean", "nanmean", "var", "std", "var_mean", "std_mean"}))
    return output.infs > 0 ? Cause::kOverflow : Cause::kDivisionByZero;
  // Norms of vectors and matrices divide by nothing.
  const bool normalizes = name.find("_norm") != std::string_view::npos &&
                          !name.starts_with("linalg_") &&
                          !is_one_of(name, {"frobenius_norm", "nuclear_norm"});
  if (normalizes) {
    const bool divides = output.infs == 0 || is_constant(call);
    return divides ? Cause::kDivisionByZero : Cause::kOverflow;
  }
  if (output.infs > 0) return Cause::kOverflow;
  const double bound = std::sqrt(largest_value(output.dtype)) / 2;
  const bool large = std::ranges::any_of(
      call.inputs, [&](const TensorRange& each) { return largest_magnitude(each) > bound; });
  return large ? Cause::kOverflow : Cause::kInvalid;
}

/// Moments of nothing: kernels that see so may write NaN with an operator of another name.
bool is_moment_of_nothing(const InnerCall& call) {
  return is_one_of(plain(call.name), {"mean", "nanmean", "var", "std", "var_mean", "std_mean"}) &&
         call.output.infs == 0;
}

std::string away_from_zero(const std::string& logarithm) {
  return "keep the argument of " + logarithm +
         " away from zero (clamp_min(1e-6)), or take the logarithm together with what makes its "
         "argument (log_softmax, logsigmoid, binary_cross_entropy_with_logits)";
}

bool is_slope_of_logarithm(const Operator* op) {
  return op != nullptr && op->backward && is_one_of(op->name, {"log", "log2", "log10", "log1p"});
}

}  // namespace

Diagnosis diagnose(const CloseUp& call, bool backward, bool reads_fill,
                   const std::vector<const NamedTensor*>& weights, const WeightHistory& history) {
  if (reads_fill) return {Cause::kInvalid, {}};
  if (!backward && is_moment_of_nothing(call.whole())) return {Cause::kDivisionByZero, {}};
  const Cause cause = cause_of(call.culprit());
  if (cause != Cause::kOverflow) return {cause, {}};
  if (backward) return {Cause::kGradientOverflow, {}};
  for (const NamedTensor* weight : weights) {
    const double size = weight->is_buffer ? 0 : magnitude_of(weight->tensor);
    if (size <= kExploded) continue;
    if (size > largest_value(call.output().dtype) || history.has_grown(weight->tensor) ||
        history.fails_in_float())
      return {Cause::kExplodedWeights, weight->name};
  }
  return {cause, {}};
}

std::string remedy(Cause cause, const Operator* first, const std::string& parameter) {
  const std::string name = first == nullptr ? "the operator" : first->name;
  switch (cause) {
    case Cause::kLogOfZero:
      return away_from_zero(name);
    case Cause::kDivisionByZero:
      if (is_slope_of_logarithm(first)) return away_from_zero(name);
      return first != nullptr && first->backward
                 ? "the derivative of " + name +
                       " divides by zero: add a small number to its argument (sqrt(x + 1e-6), in "
                       "float16 1e-3, since its inverse meets the loss scale), or mask before it, "
                       "not behind it"
                 : "the divisor in " + name +
                       " is zero: add a small number to it, and mind reductions over nothing";
    case Cause::kInvalid:
      return name +
             " has no value for these arguments (inf - inf, 0 * inf, a row that is masked "
             "whole, a root or logarithm of a negative number): mask with where or with a "
             "large finite number, or clamp the argument";
    case Cause::kBadInput:
      return "the data holds values that are not finite: check it as it is loaded, and leave out "
             "the sample";
    case Cause::kExplodedWeights:
      return "'" + parameter +
             "' is not finite or far too large: go back to a checkpoint before it was, and lower "
             "the learning rate or clip gradients";
    case Cause::kOverflow:
      return "bound what reaches " + name + ": normalise or clamp its input";
    case Cause::kGradientOverflow:
      if (is_slope_of_logarithm(first)) return away_from_zero(name);
      return "gradients grow beyond float at " + name + ": normalise, or shorten the chain";
    case Cause::kUnknown:
      break;
  }
  return "look at the operators around it";
}

}  // namespace mezzo::insight
