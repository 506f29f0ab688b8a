// The loss scales behind a model, for those who make them equal on several ranks.
#include <ATen/ops/empty.h>

#include "amp/model_state.h"
#include "core/raise.h"
#include "mezzo/model.h"

namespace mezzo::amp::detail {
namespace {

constexpr const char* kInModelScales = "set_loss_scales";
constexpr std::int64_t kFields = 3;

}  // namespace

at::Tensor ModelHandle::loss_scales() const {
  Session& session = state_->session();
  const auto losses = static_cast<std::int64_t>(session.num_losses());
  at::Tensor scales = at::empty({losses, kFields}, at::TensorOptions(at::kCPU).dtype(at::kDouble));
  double* next = scales.mutable_data_ptr<double>();
  for (int loss = 0; loss < losses; ++loss) {
    const scaling::ScaleState state = session.scaler(loss, "loss_scales").state();
    *next++ = state.scale;
    *next++ = static_cast<double>(state.unskipped);
    *next++ = static_cast<double>(state.stuck_at_floor);
  }
  return scales;
}

void ModelHandle::set_loss_scales(const at::Tensor& scales) const {
  Session& session = state_->session();
  const auto losses = static_cast<std::int64_t>(session.num_losses());
  if (!scales.defined() || scales.sizes() != at::IntArrayRef({losses, kFields}) ||
      scales.scalar_type() != at::kDouble || !scales.is_cpu() || !scales.is_contiguous()) {
    raise<ConfigError>(kInModelScales, "expected what loss_scales() gives: doubles of shape [",
                       losses, ", ", kFields, "] on the host");
  }
  const double* next = scales.const_data_ptr<double>();
  for (int loss = 0; loss < losses; ++loss, next += kFields) {
    scaling::ScaleState state;
    state.scale = next[0];
    state.unskipped = static_cast<std::int64_t>(next[1]);
    state.stuck_at_floor = static_cast<std::int64_t>(next[2]);
    session.scaler(loss, kInModelScales).set_state(state);
  }
}

}  // namespace mezzo::amp::detail
