// Drawn arguments made so large that one element of a result, or of a gradient, is a sum of
// thousands of ones.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string_view>

#include "casting/sweep/drawing.h"

namespace mezzo::casting::sweep {

/// As many terms a sum gets.
inline constexpr std::int64_t kManyTerms = 4096;

/// Makes some dimensions of a drawing long and its numbers large, at random. Floating values become
/// 1, places the first one, masks true. Most results do not fit together; enough of them do.
class Enlarging {
 public:
  explicit Enlarging(std::string_view overload);

  /// Nothing where a tensor would be too large.
  std::optional<Stack> enlarge(const c10::FunctionSchema& schema, const Stack& small);

 private:
  bool chance(int percent) { return random_() % 100 < static_cast<std::uint64_t>(percent); }
  at::Tensor tensor(const at::Tensor& small);
  c10::IValue number(std::string_view name, std::int64_t small);
  std::int64_t window(std::string_view name, std::int64_t small);

  std::mt19937_64 random_;
  bool is_spatial_ = false;        // long in the last dimensions, with large windows
  std::int64_t changed_size_ = 0;  // dimensions of this size become long
  int share_ = 100;                // ... and how many of them
};

}  // namespace mezzo::casting::sweep
