// A function made of several operators that a scope treats like one listed operator.
#pragma once

#include <optional>

#include "casting/cast.h"
#include "casting/row.h"
#include "casting/shield.h"

namespace mezzo::casting {

/// Lives while the function runs. Its arguments are cast once, weights by way of their low copies;
/// the operators that it calls inside are not cast, unless its class leaves it alone.
class WholeCall {
 public:
  /// Decides from the class of the row and the types of all tensors of the call. Throws if the
  /// policy bans the row.
  /// @param row  outlives this
  WholeCall(const Row& row, at::TensorList inputs, at::TensorList weights);

  /// The argument in the type that the function computes in. Undefined tensors stay.
  at::Tensor argument(const at::Tensor& tensor);
  /// A result as the operator would return it: rounded, where the low type is emulated.
  at::Tensor result(at::Tensor tensor) const;

 private:
  Decision decision_;
  std::optional<Casting> casting_;
  std::optional<Shield> shield_;
};

}  // namespace mezzo::casting
