#include "convert/judge/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <type_traits>

namespace mezzo::convert {
namespace {

using Row = std::span<const double>;

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

double sum_of(Row row) {
  double sum = 0;
  for (const double value : row) sum += value;
  return sum;
}

bool is_finite(Row row) {
  return std::ranges::all_of(row, [](double value) { return std::isfinite(value); });
}

bool is_distribution(Row row) {
  constexpr double kSlack = 1e-3;
  return std::ranges::all_of(row, [](double value) { return value >= 0; }) &&
         std::fabs(sum_of(row) - 1) <= kSlack;
}

// Probabilities of a row: its own where it has some, else those of a softmax over it.
std::vector<double> probabilities(Row row, bool has_some) {
  constexpr double kLeast = 1e-12;  // what rounding made zero is not impossible
  std::vector<double> result(row.begin(), row.end());
  const double largest = *std::ranges::max_element(row);
  for (double& value : result)
    value = has_some ? std::max(value, kLeast) : std::exp(value - largest);
  const double sum = sum_of(result);
  for (double& value : result) value = std::max(value / sum, kLeast);
  return result;
}

// In nats, the mean over rows; rows that are not finite are left out.
double kl_divergence(const std::vector<double>& a, const std::vector<double>& b, std::size_t row) {
  if (row < 2 || a.empty()) return 0;
  const auto row_of = [row](const std::vector<double>& all, std::size_t r) {
    return Row(all).subspan(r * row, row);
  };
  const std::size_t rows = a.size() / row;
  bool has_probabilities = true;
  for (std::size_t r = 0; r < rows && has_probabilities; ++r)
    has_probabilities = is_distribution(row_of(a, r));
  double sum = 0;
  std::size_t counted = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    if (!is_finite(row_of(a, r)) || !is_finite(row_of(b, r))) continue;
    const std::vector<double> p = probabilities(row_of(a, r), has_probabilities);
    const std::vector<double> q = probabilities(row_of(b, r), has_probabilities);
    for (std::size_t i = 0; i < row; ++i) sum += p[i] * std::log(p[i] / q[i]);
    ++counted;
  }
  return counted == 0 ? 0 : std::max(0.0, sum / static_cast<double>(counted));
}

}  // namespace

OutputError compare_outputs(const std::string& name, const Array& reference, const Array& got) {
  OutputError error;
  error.name = name;
  const std::vector<double> a = reference.values();
  const std::vector<double> b = got.values();
  if (a.size() != b.size() || reference.dims != got.dims) {
    error.same_shape = false;
    error.finite = is_finite(b);
    error.cosine = error.top1_agreement = 0;
    error.relative_to_range = error.max_absolute = error.kl_divergence = HUGE_VAL;
    return error;
  }
  Difference difference;
  difference.add(a, b);
  error.finite = difference.finite;
  error.max_absolute = difference.max_absolute;
  error.relative_to_range = difference.relative_to_range();
  error.sqnr_db = difference.sqnr_db();
  error.cosine = difference.cosine();
  const std::size_t row =
      reference.dims.empty() ? 1 : static_cast<std::size_t>(reference.dims.back());
  error.top1_agreement = top1(a, b, row);
  error.kl_divergence = kl_divergence(a, b, row);
  return error;
}

OutputError worse(const OutputError& a, const OutputError& b) {
  OutputError error = a;
  error.max_absolute = std::max(a.max_absolute, b.max_absolute);
  error.relative_to_range = std::max(a.relative_to_range, b.relative_to_range);
  error.sqnr_db = std::min(a.sqnr_db, b.sqnr_db);
  error.cosine = std::min(a.cosine, b.cosine);
  error.top1_agreement = std::min(a.top1_agreement, b.top1_agreement);
  error.kl_divergence = std::max(a.kl_divergence, b.kl_divergence);
  error.finite = a.finite && b.finite;
  error.same_shape = a.same_shape && b.same_shape;
  return error;
}

std::vector<OutputError> worst_of(const SampleErrors& samples) {
  if (samples.empty()) return {};
  std::vector<OutputError> worst = samples.front();
  for (const std::vector<OutputError>& sample : samples) {
    for (std::size_t i = 0; i < worst.size(); ++i) worst[i] = worse(worst[i], sample.at(i));
  }
  return worst;
}

std::vector<OutputError> quantile_of(const SampleErrors& samples, double share) {
  if (samples.empty()) return {};
  const auto count = static_cast<double>(samples.size());
  const auto rank = static_cast<std::size_t>(std::clamp(std::ceil(share * count), 1.0, count)) - 1;
  std::vector<OutputError> errors = samples.front();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    // `better` orders from the best sample to the worst.
    const auto choose = [&](auto member, auto better) {
      std::vector<double> numbers;
      for (const std::vector<OutputError>& sample : samples)
        numbers.push_back(static_cast<double>(sample.at(i).*member));
      std::ranges::sort(numbers, better);
      errors[i].*member =
          static_cast<std::remove_cvref_t<decltype(errors[i].*member)>>(numbers[rank]);
    };
    choose(&OutputError::max_absolute, std::less<>());
    choose(&OutputError::relative_to_range, std::less<>());
    choose(&OutputError::kl_divergence, std::less<>());
    choose(&OutputError::sqnr_db, std::greater<>());
    choose(&OutputError::cosine, std::greater<>());
    choose(&OutputError::top1_agreement, std::greater<>());
    choose(&OutputError::finite, std::greater<>());
    choose(&OutputError::same_shape, std::greater<>());
  }
  return errors;
}

}  // namespace mezzo::convert
