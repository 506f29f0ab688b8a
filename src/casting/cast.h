// One tensor on its way into an operator: does it need a cast, and the cast itself.
#pragma once

#include <cstdint>

#include "casting/decision.h"
#include "core/scalar_type.h"
#include "core/torch.h"

namespace mezzo::casting {

struct Frame;
class Row;

/// The tensor in another type, seen by autograd; of any layout, and so is its gradient.
at::Tensor converted(const at::Tensor& tensor, at::ScalarType to);

/// The casts of one operator call.
class Casting {
 public:
  Casting(const Frame& frame, const Decision& decision, const Row& row)
      : frame_(frame), row_(row), decision_(decision), types_(types_to_cast(decision)) {}

  /// A floating-point tensor that does not have the wanted type yet. Never true of float64,
  /// integers and the rest.
  bool needs(const at::TensorBase& tensor) const {
    return (types_ & bit(c10::typeMetaToScalarType(tensor.dtype()))) != 0;
  }

  /// The tensor in the wanted type: a weight's persistent copy, or a cast that autograd records.
  at::Tensor apply(const at::Tensor& tensor);

  /// Would the dispatcher go the same way with what apply() gave as with what it was given?
  bool same_keys() const { return same_keys_; }

 private:
  static_assert(static_cast<int>(at::ScalarType::NumOptions) <= 64);
  static constexpr std::uint64_t bit(at::ScalarType type) {
    return std::uint64_t{1} << static_cast<unsigned>(type);
  }
  static constexpr std::uint64_t types_to_cast(const Decision& decision) {
    constexpr std::uint64_t kAll = [] {
      std::uint64_t all = bit(at::kFloat);
      for (const DType low : kLowTypes) all |= bit(scalar_type_of(low));
      return all;
    }();
    switch (decision.plan) {
      case Plan::kFloatResult:
        return 0;
      case Plan::kEmulate:
        return kAll;
      case Plan::kInFloat:
        return kAll & ~bit(at::kFloat);
      default:
        return kAll & ~bit(decision.target);
    }
  }
  at::Tensor cast(const at::Tensor& tensor);

  const Frame& frame_;
  const Row& row_;
  Decision decision_;
  std::uint64_t types_;
  bool same_keys_ = true;
};

}  // namespace mezzo::casting
