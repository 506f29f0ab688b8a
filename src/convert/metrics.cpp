#include "convert/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <type_traits>

namespace mezzo::convert {
namespace {

constexpr double kPerfect = 200.0;  // dB, where there is no error at all

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

void add_one(Difference& sums, double a, double b) {
  if (!std::isfinite(a)) {
    sums.finite = sums.finite && (a == b || (std::isnan(a) && std::isnan(b)));
    return;
  }
  if (!std::isfinite(b)) {
    sums.finite = false;
    return;
  }
  const double difference = std::fabs(a - b);
  sums.max_absolute = std::max(sums.max_absolute, difference);
  sums.range = std::max(sums.range, std::fabs(a));
  sums.signal += a * a;
  sums.power += b * b;
  sums.product += a * b;
  sums.noise += difference * difference;
}

constexpr std::size_t kLanes = 8;  // sums side by side: a compiler makes vectors of them
using Lanes = std::array<double, kLanes>;

double sum_of(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Of finite numbers, as many as there are lanes or a multiple.
template <typename T>
void add_finite(Difference& sums, std::span<const T> reference, std::span<const T> got) {
  Lanes largest{};
  Lanes range{};
  Lanes signal{};
  Lanes power{};
  Lanes product{};
  Lanes noise{};
  for (std::size_t i = 0; i < reference.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto a = static_cast<double>(reference[i + lane]);
      const auto b = static_cast<double>(got[i + lane]);
      const double difference = std::fabs(a - b);
      largest[lane] = largest[lane] < difference ? difference : largest[lane];
      range[lane] = range[lane] < std::fabs(a) ? std::fabs(a) : range[lane];
      signal[lane] += a * a;
      power[lane] += b * b;
      product[lane] += a * b;
      noise[lane] += difference * difference;
    }
  }
  sums.max_absolute = std::max(sums.max_absolute, std::ranges::max(largest));
  sums.range = std::max(sums.range, std::ranges::max(range));
  sums.signal += sum_of(signal);
  sums.power += sum_of(power);
  sums.product += sum_of(product);
  sums.noise += sum_of(noise);
}

template <typename T>
bool are_finite(std::span<const T> values) {
  std::array<T, kLanes> zeros{};  // infinity and NaN times 0 is NaN
  for (std::size_t i = 0; i < values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) zeros[lane] += values[i + lane] * T{0};
  }
  return std::ranges::all_of(zeros, [](T zero) { return zero == T{0}; });
}

template <typename T>
void add_blocks(Difference& sums, std::span<const T> reference, std::span<const T> got) {
  constexpr std::size_t kBlock = 64 * kLanes;
  std::size_t i = 0;
  for (; i + kBlock <= reference.size(); i += kBlock) {
    const std::span<const T> a = reference.subspan(i, kBlock);
    const std::span<const T> b = got.subspan(i, kBlock);
    if (!are_finite(a) || !are_finite(b)) {
      for (std::size_t k = 0; k < kBlock; ++k)
        add_one(sums, static_cast<double>(a[k]), static_cast<double>(b[k]));
    } else {
      add_finite(sums, a, b);
    }
  }
  for (; i < reference.size(); ++i)
    add_one(sums, static_cast<double>(reference[i]), static_cast<double>(got[i]));
}

}  // namespace

void Difference::add(std::span<const double> reference, std::span<const double> got) {
  add_blocks(*this, reference, got);
}

void Difference::add(std::span<const float> reference, std::span<const float> got) {
  add_blocks(*this, reference, got);
}

double Difference::relative_to_range() const {
  return max_absolute == 0 ? 0 : max_absolute / std::max(range, 1e-6);
}

double Difference::sqnr_db() const {
  return noise == 0 ? kPerfect : 10 * std::log10(std::max(signal, 1e-300) / noise);
}

double Difference::cosine() const {
  const bool is_zero = signal == 0 || power == 0;
  return is_zero ? (signal == power ? 1 : 0) : product / std::sqrt(signal * power);
}

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
