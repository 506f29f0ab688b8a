// Minimum cut: which side every variable is on when disagreeing costs something.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace mezzo::convert {

/// The cost of an answer: fewer casts first, among these fewer bytes, among these what ties prefer.
/// An ordered group, which is all that a minimum cut needs: it is exact in every place at once.
struct Cost {
  std::int64_t casts = 0, bytes = 0, ties = 0;

  // clang-tidy 14 takes the default for a null pointer.
  auto operator<=>(const Cost&) const = default;  // NOLINT(modernize-use-nullptr)
  Cost& operator+=(const Cost& other) {
    casts += other.casts;
    bytes += other.bytes;
    ties += other.ties;
    return *this;
  }
  Cost& operator-=(const Cost& other) {
    casts -= other.casts;
    bytes -= other.bytes;
    ties -= other.ties;
    return *this;
  }
};

/// A problem over variables 0..n-1, each of which is high or low. Exact and deterministic: the
/// answer does not depend on the order in which terms were added.
class Cut {
 public:
  static constexpr Cost kInfinite{std::int64_t{1} << 52};

  explicit Cut(std::size_t variables) : high_(variables), low_(variables) {}

  std::int32_t add_variable();
  /// Costs `cost` when the variable is low (high).
  void pay_if_low(std::int32_t variable, const Cost& cost);
  void pay_if_high(std::int32_t variable, const Cost& cost);
  /// Costs `cost` when `a` is high and `b` is low.
  void pay_if_split(std::int32_t a, std::int32_t b, const Cost& cost);

  /// For every variable: is it low? Among the cheapest answers the one with most variables high.
  /// Parts without any reason to be low (one that must be, or one that costs Casts while it is
  /// high) stay high.
  std::vector<bool> solve() const;

 private:
  struct Term {
    std::int32_t a, b;
    Cost cost;
  };
  std::vector<Cost> high_, low_;  // cost of being high, of being low
  std::vector<Term> terms_;
};

}  // namespace mezzo::convert
