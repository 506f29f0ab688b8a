// Minimum cut: which side every variable is on when disagreeing costs something.
#pragma once

#include <cstdint>
#include <vector>

namespace mezzo::convert {

/// A problem over variables 0..n-1, each of which is high or low. Exact and deterministic: the
/// answer does not depend on the order in which terms were added.
class Cut {
 public:
  static constexpr std::int64_t kInfinite = std::int64_t{1} << 52;

  explicit Cut(std::size_t variables) : high_(variables, 0), low_(variables, 0) {}

  std::int32_t add_variable();
  /// Costs `cost` when the variable is low (high).
  void pay_if_low(std::int32_t variable, std::int64_t cost);
  void pay_if_high(std::int32_t variable, std::int64_t cost);
  /// Costs `cost` when `a` is high and `b` is low.
  void pay_if_split(std::int32_t a, std::int32_t b, std::int64_t cost);

  /// For every variable: is it low? Among the cheapest answers the one with most variables high.
  /// Parts without any reason to be low stay high.
  std::vector<bool> solve() const;

 private:
  struct Term {
    std::int32_t a, b;
    std::int64_t cost;
  };
  std::vector<std::int64_t> high_, low_;  // cost of being high, of being low
  std::vector<Term> terms_;
};

}  // namespace mezzo::convert
