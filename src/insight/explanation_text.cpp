#include <algorithm>
#include <cmath>
#include <sstream>

#include "mezzo/insight_explain.h"

namespace mezzo::insight {

namespace {

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

void print(std::ostream& out, const TensorRange& range) {
  out << c10::toString(range.dtype) << ' ' << sizes_text(range.sizes);
  if (!range.parameter.empty()) out << " (" << range.parameter << ')';
  if (std::isnan(range.min)) {
    out << ", no finite value";
  } else {
    out << ", " << range.min << " to " << range.max;
    if (!range.largest_at.empty()) out << ", largest at " << sizes_text(range.largest_at);
  }
  if (range.zeros > 0) out << ", " << range.zeros << " zeros";
  if (range.infs > 0) out << ", " << range.infs << " infinite";
  if (range.nans > 0) out << ", " << range.nans << " NaN";
  if (!range.not_finite_at.empty()) out << ", first at " << sizes_text(range.not_finite_at);
}

/// The fault of the operator, in words.
std::string_view verb(Cause cause) {
  switch (cause) {
    case Cause::kOverflow:
      return "overflowed";
    case Cause::kGradientOverflow:
      return "gave a gradient beyond its type";
    case Cause::kLogOfZero:
      return "took a logarithm of zero";
    case Cause::kDivisionByZero:
      return "divided by zero";
    case Cause::kInvalid:
      return "made NaN of its arguments";
    case Cause::kExplodedWeights:
      return "overflowed on weights that have exploded";
    default:
      return "made values that are not finite";
  }
}

std::string_view in_float(const Explanation& why) {
  if (!why.runs_in_float) return "does not run in float";
  return why.fails_in_float ? "fails in float" : "passes in float";
}

}  // namespace

std::string Explanation::summary() const {
  if (!reproduced) return "the step passes now: nothing to explain";
  if (!first) {
    if (cause == Cause::kExplodedWeights)
      return "'" + parameter + "' holds values that are not finite";
    if (cause == Cause::kBadInput) return "the data holds values that are not finite";
    return "gradients are not finite, first that of '" + parameter + "'";
  }
  std::string text = first->backward ? "backward of " + first->name : first->name;
  if (!first->module.empty()) text += " (" + first->module + ")";
  text += " ";
  text += verb(cause);
  return text;
}

std::string Explanation::to_text() const {
  constexpr std::size_t kMostInputs = 4;
  std::ostringstream out;
  out << summary() << '\n';
  if (!reproduced) return out.str();
  out << "  at " << level << ", loss scale " << loss_scale;
  if (rank > 0) out << ", rank " << rank;
  out << "; " << in_float(*this) << '\n';
  if (first) {
    for (std::size_t i = 0; i < std::min(first->inputs.size(), kMostInputs); ++i) {
      out << "  input " << i << ": ";
      print(out, first->inputs[i]);
      out << '\n';
    }
    out << "  output:  ";
    print(out, first->output);
    out << '\n';
  }
  if (!parameter.empty() && first) out << "  reaches the gradient of '" << parameter << "'\n";
  for (const Advice& each : advice)
    out << "  " << (each.tried ? "tried: " : "advice: ") << each.text << '\n';
  return out.str();
}

}  // namespace mezzo::insight
