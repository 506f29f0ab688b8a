// How much a loss is multiplied by before its backward pass: a number, or "dynamic".
#pragma once

#include <string>
#include <type_traits>

#include "mezzo/export.h"

namespace mezzo::amp {

/// A static scale, or the wish for one that follows the gradients. Implicit from any arithmetic
/// type, from "dynamic", and from a number as text. Zero, negative, infinite and NaN, numbers that
/// float cannot hold, and any other text throw ConfigError.
class MEZZO_API LossScale {
 public:
  /// The scale of 1, which changes nothing.
  LossScale() = default;

  template <typename Number>
  requires std::is_arithmetic_v<Number> LossScale(Number value)
      : value_(checked(static_cast<double>(value))) {}
  LossScale(const char* text);
  LossScale(const std::string& text);

  /// Does the scale adapt itself?
  bool is_dynamic() const noexcept { return dynamic_; }

  /// The static scale; 1 for a dynamic one, which has no value before it is used.
  double value() const noexcept { return value_; }

  /// "dynamic", or the number.
  std::string to_string() const;

  friend bool operator==(const LossScale&, const LossScale&) = default;

 private:
  static double checked(double value);

  double value_ = 1.0;
  bool dynamic_ = false;
};

}  // namespace mezzo::amp
