#include "convert/metrics.h"

#include <algorithm>
#include <cmath>

namespace mezzo::convert {
namespace {

constexpr double kPerfect = 200.0;  // dB, where there is no error at all

double top1(const std::vector<double>& a, const std::vector<double>& b, std::size_t row) {
  if (row < 2 || a.empty()) return 1;
  std::size_t agreeing = 0;
  const std::size_t rows = a.size() / row;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto first = static_cast<std::ptrdiff_t>(r * row);
    const auto last = static_cast<std::ptrdiff_t>((r + 1) * row);
    const auto best_a = std::max_element(a.begin() + first, a.begin() + last) - a.begin();
    const auto best_b = std::max_element(b.begin() + first, b.begin() + last) - b.begin();
    agreeing += best_a == best_b ? 1 : 0;
  }
  return static_cast<double>(agreeing) / static_cast<double>(rows);
}

}  // namespace

OutputError compare_outputs(const std::string& name, const Array& reference, const Array& got) {
  OutputError error;
  error.name = name;
  const std::vector<double> a = reference.values();
  const std::vector<double> b = got.values();
  if (a.size() != b.size() || reference.dims != got.dims) {
    error.same_shape = false;
    error.finite = std::ranges::all_of(b, [](double value) { return std::isfinite(value); });
    error.cosine = error.top1_agreement = 0;
    error.relative_to_range = error.max_absolute = HUGE_VAL;
    return error;
  }
  double range = 0;
  double signal = 0;
  double noise = 0;
  double product = 0;
  double power = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) {
      error.finite = error.finite && (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])));
      continue;
    }
    if (!std::isfinite(b[i])) {
      error.finite = false;
      continue;
    }
    const double difference = std::fabs(a[i] - b[i]);
    error.max_absolute = std::max(error.max_absolute, difference);
    range = std::max(range, std::fabs(a[i]));
    signal += a[i] * a[i];
    power += b[i] * b[i];
    product += a[i] * b[i];
    noise += difference * difference;
  }
  error.relative_to_range =
      error.max_absolute == 0 ? 0 : error.max_absolute / std::max(range, 1e-6);
  error.sqnr_db = noise == 0 ? kPerfect : 10 * std::log10(std::max(signal, 1e-300) / noise);
  const bool is_zero = signal == 0 || power == 0;
  error.cosine = is_zero ? (signal == power ? 1 : 0) : product / std::sqrt(signal * power);
  const std::size_t row =
      reference.dims.empty() ? 1 : static_cast<std::size_t>(reference.dims.back());
  error.top1_agreement = top1(a, b, row);
  return error;
}

OutputError worse(const OutputError& a, const OutputError& b) {
  OutputError error = a;
  error.max_absolute = std::max(a.max_absolute, b.max_absolute);
  error.relative_to_range = std::max(a.relative_to_range, b.relative_to_range);
  error.sqnr_db = std::min(a.sqnr_db, b.sqnr_db);
  error.cosine = std::min(a.cosine, b.cosine);
  error.top1_agreement = std::min(a.top1_agreement, b.top1_agreement);
  error.finite = a.finite && b.finite;
  error.same_shape = a.same_shape && b.same_shape;
  return error;
}

}  // namespace mezzo::convert
