#include "core/scalar_type.h"
#include "core/torch.h"
#include "legacy/scale_rules.h"
#include "mezzo/fp16_utils.h"
#include "scaling/finite_check.h"

namespace mezzo::fp16_utils {
namespace {

void backward_scaled(std::string_view where, const at::Tensor& loss, double scale,
                     bool retain_graph) {
  if (!loss.defined()) raise<ConfigError>(where, "the loss is an undefined tensor");
  (is_low(loss.scalar_type()) ? loss.to(at::kFloat) : loss).mul(scale).backward({}, retain_graph);
}

}  // namespace

LossScaler::LossScaler(double scale) : scale_(checked_scale("LossScaler", scale)) {}

bool LossScaler::has_overflow(const std::vector<at::Tensor>& /*params*/) {
  return false;
}

void LossScaler::update_scale(bool /*overflow*/) {}

void LossScaler::backward(const at::Tensor& loss, bool retain_graph) {
  backward_scaled("LossScaler", loss, scale_, retain_graph);
}

at::Tensor LossScaler::scale_gradient(const at::Tensor& gradient) {
  return gradient.mul(scale_);
}

DynamicLossScaler::DynamicLossScaler(double init_scale, double scale_factor, int scale_window)
    : scale_(init_scale), factor_(scale_factor), window_(scale_window) {
  constexpr std::string_view kWhere = "DynamicLossScaler";
  checked_first_scale(kWhere, init_scale, scale_rules(kWhere, factor_, window_));
}

bool DynamicLossScaler::has_overflow(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& param : params) {
    if (param.defined() && param.grad().defined()) gradients.push_back(param.grad());
  }
  return scaling::first_nonfinite(gradients) != gradients.size();
}

void DynamicLossScaler::update_scale(bool overflow) {
  const scaling::ScaleState next = scaling::advance(
      {scale_, clean_, 0}, overflow, scale_rules("DynamicLossScaler", factor_, window_));
  scale_ = next.scale;
  clean_ = next.unskipped;
}

void DynamicLossScaler::backward(const at::Tensor& loss, bool retain_graph) {
  backward_scaled("DynamicLossScaler", loss, scale_, retain_graph);
}

at::Tensor DynamicLossScaler::scale_gradient(const at::Tensor& gradient) {
  return gradient.mul(scale_);
}

}  // namespace mezzo::fp16_utils
