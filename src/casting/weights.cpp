#include "casting/weights.h"

#include "casting/weight_shadows.h"

namespace mezzo::casting {
namespace {

thread_local bool keeps_weights = true;
thread_local int lasting_scopes = 0;

}  // namespace

WeightKeeping::WeightKeeping(bool keeps) noexcept : before_(keeps_weights) {
  keeps_weights = keeps;
}

WeightKeeping::~WeightKeeping() {
  keeps_weights = before_;
}

bool WeightKeeping::here() noexcept {
  return keeps_weights;
}

LastingScope::LastingScope() noexcept {
  ++lasting_scopes;
}

LastingScope::~LastingScope() {
  --lasting_scopes;
}

bool LastingScope::here() noexcept {
  return lasting_scopes != 0;
}

void refresh_casts(at::TensorList weights) {
  WeightShadows::global().refresh(weights);
}
void leave_casts(at::TensorList weights) {
  WeightShadows::global().leave(weights);
}
void invalidate_casts(at::TensorList weights) {
  WeightShadows::global().invalidate(weights);
}
void drop_all_casts() {
  WeightShadows::global().drop_all();
}
void remember_weights(at::TensorList weights) {
  WeightShadows::global().remember(weights);
}
void forget_weights(at::TensorList weights) {
  WeightShadows::global().forget(weights);
}

}  // namespace mezzo::casting
