#include "casting/held_scalars.h"

#include <ATen/ops/where.h>

#include <atomic>
#include <string>

#include "core/scalar_type.h"
#include "mezzo/messages.h"

namespace mezzo::casting {
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

void write_nearest(const at::Tensor& written, const at::Tensor& computed) {
  const double limit = row_of(low_dtype_of(written.scalar_type(), "write_nearest")).largest;
  write_back(written, at::where(computed.isinf(), computed, computed.clamp(-limit, limit)));
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

}  // namespace mezzo::casting
