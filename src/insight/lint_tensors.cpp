#include "insight/lint_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <string_view>

#include "insight/tensor_range.h"

namespace mezzo::insight {

void check_range(const std::string& name, const at::Tensor& weight, std::vector<Finding>& into) {
  if (!weight.defined() || !weight.is_floating_point()) return;
  const TensorRange range = range_of(weight.detach());
  const double largest =
      std::isnan(range.max) ? 0 : std::max(std::fabs(range.min), std::fabs(range.max));
  std::ostringstream evidence;
  if (range.nans + range.infs > 0) {
    evidence << range.nans << " values are NaN and " << range.infs << " infinite";
    into.push_back({"error", "range", name, evidence.str(), "load or initialize the weights anew"});
  } else if (largest > kLargestInHalf) {
    evidence << "its largest magnitude is " << largest << "; float16 (O1, O2, O3) ends at 65504";
    into.push_back({"error", "range", name, evidence.str(),
                    "use bfloat16 (O4, O5), or scale the weights down"});
  }
}

void check_matrix(const std::string& name, const at::Tensor& weight, std::vector<Finding>& into) {
  constexpr std::int64_t kUnit = 8;
  const auto padded = [](std::int64_t size) { return (size + kUnit - 1) / kUnit * kUnit; };
  if (!weight.defined() || weight.dim() < 2) return;
  const std::int64_t rows = weight.size(0), columns = weight.size(1);
  if (rows % kUnit == 0 && columns % kUnit == 0) return;
  std::ostringstream evidence, advice;
  evidence << rows << " x " << columns
           << " is no multiple of 8 both ways: matrix units (O1 to O5) fill up with zeros";
  advice << "pad to " << padded(rows) << " x " << padded(columns);
  into.push_back({"info", "sizes", name, evidence.str(), advice.str()});
}

void note_buffer(const std::string& name, std::vector<Finding>& into) {
  into.push_back({"warning", "buffer", name,
                  "O2, O3 and O5 cast this float buffer: tables of positions and statistics of "
                  "one's own lose digits there",
                  "keep it with Options::keep_float = {\"" + name + "\"}"});
}

void sort_by_severity(std::vector<Finding>& findings) {
  constexpr std::array<std::string_view, 3> kOrder{"error", "warning", "info"};
  std::ranges::stable_sort(findings, {}, [&](const Finding& each) {
    return std::ranges::find(kOrder, each.severity) - kOrder.begin();
  });
}

}  // namespace mezzo::insight
