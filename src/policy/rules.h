// A policy without LibTorch: the table's classes for one low type, and what a caller changed.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "mezzo/cast_class.h"

namespace mezzo {

/// Where an argument of an operator has one of the values, the operator runs in float32; else it is
/// left alone. Values are compared as text: strings as they are, numbers as the shortest decimal,
/// "true" and "false".
struct ConditionalRule {
  std::size_t row;
  std::string argument;
  std::vector<std::string> values;
};

/// One change to the defaults, as the caller wrote it.
struct Override {
  std::string name;
  CastClass cast_class;
  std::string argument;             ///< of a kConditional
  std::vector<std::string> values;  ///< of a kConditional
};

/// An immutable value. If two overrides concern one operator, the narrower name wins, in any order
/// ("softmax.int" over "softmax"); two equally wide names in different classes are a ConfigError.
class Rules {
 public:
  /// The defaults for float16 or bfloat16, registered operators included. Any other type:
  /// ConfigError.
  explicit Rules(DType low);

  DType low() const noexcept { return low_; }

  /// The rules with one more override. A name that nobody knows, kConditional and a contradiction
  /// are ConfigErrors. A foreign name (see is_foreign()) is kept, and decides about nothing.
  Rules with(std::string_view op, CastClass) const;

  /// The rules with a conditional operator. MXNet's ("Activation", "act_type", {"softrelu"}) means
  /// the operator behind each value; a value that it does not have is a ConfigError, as is an empty
  /// list of values.
  Rules with_conditional(std::string_view op, std::string_view argument,
                         std::vector<std::string> values) const;

  /// The rules with kFloat in place of kBanned in every override.
  Rules without_bans() const;

  /// The class of a row; of a row registered later than these rules: neutral.
  CastClass class_of(std::size_t row) const noexcept {
    return row < classes_.size() ? classes_[row] : CastClass::kNeutral;
  }
  /// Has an override decided about the row?
  bool overrides_row(std::size_t row) const { return decisions_.contains(row); }
  /// The class of a name. Where its overloads differ: that of the overload without a name, else of
  /// those that are not neutral; kConditional where these differ too. Unknown: ConfigError.
  CastClass classify(std::string_view op) const;

  /// The reason, never empty. Unknown: ConfigError.
  std::string why(std::string_view op) const;

  const std::vector<CastClass>& classes() const noexcept { return classes_; }
  const std::vector<ConditionalRule>& conditionals() const noexcept { return conditionals_; }
  const std::vector<Override>& overrides() const noexcept { return overrides_; }

 private:
  struct Decision {
    CastClass cast_class;
    std::size_t width;  ///< how many rows the deciding name means
    std::size_t by;     ///< the deciding override
  };

  void decide(const std::vector<std::size_t>& rows, CastClass);
  std::string reason(std::size_t row) const;

  DType low_;
  std::vector<CastClass> classes_;
  std::vector<ConditionalRule> conditionals_;
  std::vector<Override> overrides_;
  std::map<std::size_t, Decision> decisions_;
};

/// The rows, of the table or registered, that a name means; empty for none.
std::vector<std::size_t> rows_named(std::string_view name);

/// Throws the ConfigError for a name that nobody knows, with the nearest ones.
[[noreturn]] void raise_unknown_operator(std::string_view name);

}  // namespace mezzo
