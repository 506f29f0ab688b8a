// A kernel's knowledge of its operator: its row in the table, and how its class is asked for.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "casting/scope.h"

namespace mezzo::casting {

class Row {
 public:
  Row() = default;
  /// @param index     the row in the table, or the number of an operator that a user registered
  /// @param overload  the dispatcher's name without "aten::", such as "addmm_" or "softmax.int"
  Row(std::size_t index, std::string overload);

  std::string_view name() const { return overload_; }
  const Traits& traits() const { return traits_; }
  /// A scalar or 0-dimensional tensor that the low type cannot hold makes it run in float.
  bool guards_scalars() const { return guards_scalars_; }
  /// Is the i-th argument a weight by its name?
  bool is_weight(std::size_t index) const {
    return std::ranges::find(weights_, index) != weights_.end();
  }
  /// Batch norms: the arguments behind the input are statistics that the operator updates.
  bool casts_input_only() const { return input_only_; }
  /// Is the i-th argument a running statistic that the operator writes in place?
  bool is_statistic(std::size_t index) const {
    return std::ranges::find(statistics_, index) != statistics_.end();
  }

  /// The treatment under the frame's policy; a conditional one is resolved by `text(i)`, the i-th
  /// argument as text.
  template <typename Text>
  Treatment resolve(const Frame& frame, Text&& text) const {
    const Treatment kind = frame.policy->treatment_of(index_);
    if (kind != Treatment::kConditional) return kind;
    const std::optional<std::size_t> argument = condition_argument(frame);
    return argument && condition_holds(frame, text(*argument)) ? Treatment::kFloat
                                                               : Treatment::kShield;
  }

  /// Throws the error of a banned operator.
  [[noreturn]] void refuse(const Frame& frame) const;

 private:
  std::optional<std::size_t> condition_argument(const Frame& frame) const;
  bool condition_holds(const Frame& frame, std::string_view value) const;

  std::size_t index_ = 0;
  std::string overload_;
  std::vector<std::string> arguments_;  // their names
  std::vector<std::size_t> weights_;    // which of them are weights
  std::vector<std::size_t> statistics_;
  Traits traits_;
  bool input_only_ = false;
  bool guards_scalars_ = false;
};

/// An argument as a condition's values write it: "tanh", "true", "1", "0.5", "float32", "none".
/// Empty for what Policy::with_conditional refuses, and for complex numbers.
std::string text_of(bool value);
std::string text_of(std::int64_t value);
std::string text_of(double value);
std::string text_of(at::ScalarType value);
std::string text_of(const at::Scalar& value);
std::string text_of(const c10::SymInt& value);

template <typename T>
std::string argument_text_of(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::int64_t> ||
                       std::is_same_v<T, double> || std::is_same_v<T, at::ScalarType> ||
                       std::is_same_v<T, at::Scalar> || std::is_same_v<T, c10::SymInt>) {
    return text_of(value);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    return value.has_value() ? argument_text_of(*value) : "none";
  } else {
    return {};
  }
}

template <typename... A>
std::string argument_text(std::size_t wanted, const A&... arguments) {
  std::string text;
  std::size_t index = 0;
  ((index++ == wanted ? void(text = argument_text_of(arguments)) : void()), ...);
  return text;
}

}  // namespace mezzo::casting
