// Scalars that a low type cannot hold: too large, or so small that it loses their digits.
#pragma once

#include <cmath>
#include <optional>
#include <string_view>

#include "casting/decision.h"
#include "core/scalar_type.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Does the value stay finite and normal in the low type? Zero, infinities and NaN are held.
inline bool holds(const DTypeRow& low, double value) {
  const double size = std::abs(value);
  if (size == 0 || !std::isfinite(size)) return true;
  return size >= low.smallest_normal && size <= low.largest;
}

/// The scalars and 0-dimensional tensors of one call.
class ScalarGuard {
 public:
  void look(const at::Scalar& scalar) {
    if (!scalar.isComplex()) look(scalar.toDouble());
  }
  void look(const std::optional<at::Scalar>& scalar) {
    if (scalar) look(*scalar);
  }
  void look(double value) {
    for (const DType low : kLowTypes) {
      if (!holds(row_of(low), value)) unheld_ = unheld_ | LowTypes::of(low);
    }
  }
  void look(const std::optional<double>& value) {
    if (value) look(*value);
  }
  /// A 0-dimensional float32 tensor takes the type of the others. One on a device is not read,
  /// since that would wait for the device.
  void look(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.dim() == 0) look_inside(tensor);
  }
  void look(const std::optional<at::Tensor>& tensor) {
    if (tensor) look(*tensor);
  }
  template <typename T>
  void look(const T&) {}

  /// Does every low type hold them?
  bool all_held() const { return !unheld_.any(); }
  /// Is there one that a low type among the operands, or the one that they are cast to, does not
  /// hold?
  bool unheld(const Operands& seen, Treatment kind, at::ScalarType low) const {
    const LowTypes types = kind == Treatment::kLow ? seen.low | LowTypes::of(low) : seen.low;
    return types.meets(unheld_);
  }

 private:
  void look_inside(const at::Tensor& tensor);

  LowTypes unheld_;
};

/// Gives `written`, of a low type, the values that an operator in place computed in float; finite
/// ones that it cannot hold become the nearest that it can, with one message. A zero that
/// `add_`, `sub_` or a clamp makes nonzero becomes the smallest number of the type: it guards a
/// division or a logarithm.
void write_nearest(std::string_view op, const at::Tensor& written, const at::Tensor& computed);

/// Gives `written` the values of `computed`, and its size if that differs (`out=`).
void write_back(const at::Tensor& written, const at::Tensor& computed);

}  // namespace mezzo::casting
