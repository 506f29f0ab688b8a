// One tensor on its way into an operator: does it need a cast, and the cast itself.
#pragma once

#include <string_view>

#include "casting/decision.h"
#include "core/torch.h"

namespace mezzo::casting {

struct Frame;

/// The casts of one operator call.
class Casting {
 public:
  Casting(const Frame& frame, const Decision& decision, std::string_view op)
      : frame_(frame), decision_(decision), op_(op) {}

  /// A floating-point tensor that does not have the wanted type yet. Never true of float64,
  /// integers and the rest.
  bool needs(const at::TensorBase& tensor) const {
    if (!tensor.defined() || decision_.plan == Plan::kFloatResult) return false;
    const at::ScalarType type = tensor.scalar_type();
    if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
    return decision_.plan == Plan::kEmulate || type != decision_.target;
  }

  /// The tensor in the wanted type: a weight's persistent copy, or a cast that autograd records.
  at::Tensor apply(const at::Tensor& tensor) const;

 private:
  const Frame& frame_;
  Decision decision_;
  std::string_view op_;
};

}  // namespace mezzo::casting
