#include "device_check/native_step.h"

namespace mezzo::device_check {
namespace {

class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, at::ScalarType low) : device_(device) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, low);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
};

}  // namespace

NativeStep::NativeStep(std::shared_ptr<CheckedNetwork> net, at::Device place, at::ScalarType low)
    : net_(std::move(net)), place_(place), low_(low), params_(net_->parameters()) {
  const auto options = at::TensorOptions(place).dtype(at::kFloat);
  for (const at::Tensor& param : params_) {
    values_.push_back(param.detach());
    m_.push_back(at::zeros_like(values_.back()));
    v_.push_back(at::zeros_like(values_.back()));
    steps_.push_back(at::zeros({}, options));
  }
  found_ = at::zeros({1}, options);
  scale_ = at::full({1}, 1024.0, options);
  growth_ = at::zeros({1}, options.dtype(at::kInt));
}

at::Tensor NativeStep::autocast_loss(const Batch& batch) {
  const AutocastScope scope(place_.type(), low_);
  return net_->loss(net_->forward(batch.input), batch.target);
}

void NativeStep::operator()(const Batch& batch) {
  for (at::Tensor& param : params_) param.mutable_grad().reset();
  const at::Tensor loss = autocast_loss(batch);
  const bool scaled = low_ == at::kHalf;
  (scaled ? loss * scale_.squeeze() : loss).backward();
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const at::Tensor& param : params_)
    grads.push_back(param.grad().defined() ? param.grad() : at::zeros_like(param));
  found_.zero_();
  if (scaled) at::_amp_foreach_non_finite_check_and_unscale_(grads, found_, scale_.reciprocal());
  at::_foreach_add_(steps_, 1);
  at::_fused_adamw_(values_, grads, m_, v_, {}, steps_, 1e-4, 0.9, 0.999, 0.01, 1e-8, false, false,
                    std::nullopt, scaled ? std::optional(found_) : std::nullopt);
  if (scaled) at::_amp_update_scale_(scale_, growth_, found_, 2.0, 0.5, 2000);
}

bool NativeStep::weights_are_finite() const {
  for (const at::Tensor& value : values_)
    if (!value.isfinite().all().item<bool>()) return false;
  return true;
}

}  // namespace mezzo::device_check
