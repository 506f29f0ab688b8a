#include "casting/reversed_division.h"

#include <atomic>
#include <string>

#include "core/scalar_type.h"
#include "mezzo/messages.h"

namespace mezzo::casting {
namespace {

// Compared, never followed.
thread_local const c10::TensorImpl* last_filled = nullptr;

}  // namespace

void note_filled(const at::Tensor& self) noexcept {
  last_filled = self.unsafeGetTensorImpl();
}

void tell_reversed_division(const at::Tensor& self) {
  const bool reversed = last_filled == self.unsafeGetTensorImpl() && self.use_count() == 1;
  if (!reversed) return;
  last_filled = nullptr;
  const at::ScalarType type = self.scalar_type();
  if (!is_low(type)) return;
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  send_message(std::string("mezzo: `scalar / tensor` of a ") + c10::toString(type) +
               " tensor is written in place by LibTorch and stays in 16 bits; "
               "`tensor.reciprocal() * scalar` is computed in float. Said once");
}

}  // namespace mezzo::casting
