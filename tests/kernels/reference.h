// Independent arithmetic for the kernel tests: 16-bit formats by the definition of their values,
// and arrays in any element type.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/buffers.h"
#include "kernels/kernel_set.h"

namespace mezzo::kernels::testing_support {

struct Format {
  int exponent_bits;
  int mantissa_bits;
};
constexpr Format format_of(DType dtype) {
  return dtype == DType::kFloat16 ? Format{5, 10} : Format{8, 7};
}

inline double value_of(std::uint16_t bits, DType dtype) {
  const auto [exponent_bits, mantissa_bits] = format_of(dtype);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// The nearest number of the format, ties to even.
inline double rounded_to(double x, DType dtype) {
  if (dtype == DType::kFloat32) return static_cast<double>(static_cast<float>(x));
  if (dtype == DType::kFloat64 || !std::isfinite(x) || x == 0) return x;
  const auto [exponent_bits, mantissa_bits] = format_of(dtype);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(x), 1 - bias);
  const double step = std::ldexp(1.0, exponent - mantissa_bits);
  const double result = std::nearbyint(x / step) * step;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -mantissa_bits), bias);
  return std::abs(result) > largest ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                    : result;
}

inline std::uint16_t bits_of(double x, DType dtype) {
  const auto [exponent_bits, mantissa_bits] = format_of(dtype);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double r = std::abs(rounded_to(x, dtype));
  const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  if (std::isinf(r)) return static_cast<std::uint16_t>(sign | infinity);
  if (r == 0) return sign;
  const int exponent = std::max(std::ilogb(r), 1 - bias);
  const auto mantissa = static_cast<int>(r / std::ldexp(1.0, exponent - mantissa_bits));
  if (mantissa < (1 << mantissa_bits)) return static_cast<std::uint16_t>(sign | mantissa);
  return static_cast<std::uint16_t>(sign | ((exponent + bias) << mantissa_bits) |
                                    (mantissa - (1 << mantissa_bits)));
}

/// An array of any floating-point type that tests fill and read as doubles.
class Array {
 public:
  Array(DType dtype, std::int64_t count)
      : dtype_(dtype), count_(count), bytes_(static_cast<std::size_t>(count) * size_of(dtype)) {}
  Array(DType dtype, const std::vector<double>& values)
      : Array(dtype, static_cast<std::int64_t>(values.size())) {
    for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<std::int64_t>(i), values[i]);
  }

  static Array random(DType dtype, std::int64_t count, unsigned seed, double low = -1,
                      double high = 1) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    Array result(dtype, count);
    for (std::int64_t i = 0; i < count; ++i) result.set(i, uniform(engine));
    return result;
  }

  double operator[](std::int64_t i) const {
    const unsigned char* from = bytes_.data() + static_cast<std::size_t>(i) * size_of(dtype_);
    if (dtype_ == DType::kFloat64) return read<double>(from);
    if (dtype_ == DType::kFloat32) return static_cast<double>(read<float>(from));
    return value_of(read<std::uint16_t>(from), dtype_);
  }
  void set(std::int64_t i, double x) {
    unsigned char* to = bytes_.data() + static_cast<std::size_t>(i) * size_of(dtype_);
    if (dtype_ == DType::kFloat64) {
      std::memcpy(to, &x, 8);
    } else if (dtype_ == DType::kFloat32) {
      const auto single = static_cast<float>(x);
      std::memcpy(to, &single, 4);
    } else {
      const std::uint16_t bits = bits_of(x, dtype_);
      std::memcpy(to, &bits, 2);
    }
  }
  std::vector<double> values() const {
    std::vector<double> result;
    for (std::int64_t i = 0; i < count_; ++i) result.push_back((*this)[i]);
    return result;
  }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  std::int64_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  Input in() const { return {bytes_.data(), dtype_, count_}; }
  Output out() { return {bytes_.data(), dtype_, count_}; }
  Range all() const { return {0, count_}; }
  friend bool operator==(const Array& a, const Array& b) { return a.bytes_ == b.bytes_; }

 private:
  template <typename T>
  static T read(const unsigned char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }

  DType dtype_;
  std::int64_t count_;
  std::vector<unsigned char> bytes_;
};

/// How far two roundings of the same number of this type may be apart, relatively.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat64:
      return 1e-13;
    default:
      return 2e-6;
  }
}

constexpr std::int64_t kSizes[] = {0, 1, 3, 16, 17, 63, 1000, 65537};
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};

}  // namespace mezzo::kernels::testing_support
