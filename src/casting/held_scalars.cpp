#include "casting/held_scalars.h"

#include <ATen/ops/copysign.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include <atomic>
#include <string>

#include "core/scalar_type.h"
#include "mezzo/messages.h"

namespace mezzo::casting {
namespace {

bool guards_zeros(std::string_view op) {
  return op.starts_with("add_") || op.starts_with("sub_") || op.starts_with("clamp_");
}

/// To be added to what was computed, so that zeros that became nonzero stay so; a constant, so that
/// gradients are those of the operator.
at::Tensor guards_of(const DTypeRow& low, const at::Tensor& written, const at::Tensor& computed) {
  if (written.sizes() != computed.sizes()) return {};
  const at::NoGradGuard no_gradients;
  const double smallest = low.smallest_normal * low.epsilon;
  const at::Tensor vanishes =
      written.eq(0).logical_and(computed.ne(0)).logical_and(computed.abs().lt(smallest));
  const at::Tensor least = at::copysign(at::full_like(computed, smallest), computed);
  return at::where(vanishes, least - computed, 0.0);
}

void tell_nearest(std::string_view op, at::ScalarType written) {
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  const std::string type(c10::toString(written));
  send_message(
      "mezzo: '" + std::string(op) + "' writes a scalar that " + type +
      " cannot hold into a tensor of that type, which gets the nearest finite value; out of place "
      "(masked_fill instead of masked_fill_) it runs in float. `scalar - x` and `scalar / x` are "
      "written in place by LibTorch: torch::rsub(x, scalar) and x.reciprocal() * scalar are "
      "computed in float. Said once");
}

}  // namespace

void ScalarGuard::look_inside(const at::Tensor& tensor) {
  const bool readable = tensor.scalar_type() == at::kFloat && tensor.is_cpu() &&
                        tensor.has_storage() && tensor.storage().data() != nullptr &&
                        !tensor._is_zerotensor() && !tensor.is_neg();
  if (readable) look(static_cast<double>(*tensor.const_data_ptr<float>()));
}

void write_back(const at::Tensor& written, const at::Tensor& computed) {
  if (written.sizes() != computed.sizes()) written.resize_(computed.sizes());
  written.copy_(computed);
}

void write_nearest(std::string_view op, const at::Tensor& written, const at::Tensor& computed) {
  const DTypeRow& low = row_of(low_dtype_of(written.scalar_type(), "write_nearest"));
  const at::Tensor nearest =
      at::where(computed.isinf(), computed, computed.clamp(-low.largest, low.largest));
  const at::Tensor guards = guards_zeros(op) ? guards_of(low, written, computed) : at::Tensor();
  write_back(written, guards.defined() ? nearest + guards : nearest);
  tell_nearest(op, written.scalar_type());
}

}  // namespace mezzo::casting
