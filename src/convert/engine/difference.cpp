#include "convert/engine/difference.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mezzo::convert {
namespace {

constexpr double kPerfect = 200.0;  // dB, where there is no error at all

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

// Takes finite numbers, as many as there are lanes or a multiple.
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

}  // namespace mezzo::convert
