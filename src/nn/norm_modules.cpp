#include <ATen/ops/empty.h>
#include <torch/nn/init.h>

#include "core/torch.h"
#include "mezzo/nn.h"

namespace mezzo::nn {
namespace {

void check_options(const char* where, const NormOptions& options) {
  bool positive = !options.normalized_shape.empty();
  for (const std::int64_t size : options.normalized_shape) positive = positive && size > 0;
  if (!positive) {
    raise<ConfigError>(where, "normalized_shape is ", at::IntArrayRef(options.normalized_shape),
                       "; expected one size or more, all above 0");
  }
  if (!(options.eps >= 0)) {
    raise<ConfigError>(where, "eps is ", options.eps, "; expected at least 0");
  }
}

void print(std::ostream& stream, const char* name, const NormOptions& options) {
  stream << name << '(' << at::IntArrayRef(options.normalized_shape) << ", eps=" << options.eps
         << ", elementwise_affine=" << (options.elementwise_affine ? "true" : "false")
         << ", memory_efficient=" << (options.memory_efficient ? "true" : "false") << ')';
}

NormOptions shaped(std::vector<std::int64_t> normalized_shape) {
  NormOptions options;
  options.normalized_shape = std::move(normalized_shape);
  return options;
}

}  // namespace

FusedLayerNormImpl::FusedLayerNormImpl(NormOptions given) : options(std::move(given)) {
  FusedLayerNormImpl::reset();
}

FusedLayerNormImpl::FusedLayerNormImpl(std::vector<std::int64_t> normalized_shape)
    : FusedLayerNormImpl(shaped(std::move(normalized_shape))) {}

void FusedLayerNormImpl::reset() {
  check_options("FusedLayerNorm", options);
  if (!options.elementwise_affine) return;
  weight = register_parameter("weight", at::empty(options.normalized_shape));
  bias = register_parameter("bias", at::empty(options.normalized_shape));
  reset_parameters();
}

void FusedLayerNormImpl::reset_parameters() {
  if (!options.elementwise_affine) return;
  torch::nn::init::ones_(weight);
  torch::nn::init::zeros_(bias);
}

void FusedLayerNormImpl::pretty_print(std::ostream& stream) const {
  print(stream, "mezzo::nn::FusedLayerNorm", options);
}

at::Tensor FusedLayerNormImpl::forward(const at::Tensor& x) {
  return fused_layer_norm(x, options.normalized_shape, weight, bias, options.eps,
                          options.memory_efficient);
}

FusedRMSNormImpl::FusedRMSNormImpl(NormOptions given) : options(std::move(given)) {
  FusedRMSNormImpl::reset();
}

FusedRMSNormImpl::FusedRMSNormImpl(std::vector<std::int64_t> normalized_shape)
    : FusedRMSNormImpl(shaped(std::move(normalized_shape))) {}

void FusedRMSNormImpl::reset() {
  check_options("FusedRMSNorm", options);
  if (!options.elementwise_affine) return;
  weight = register_parameter("weight", at::empty(options.normalized_shape));
  reset_parameters();
}

void FusedRMSNormImpl::reset_parameters() {
  if (options.elementwise_affine) torch::nn::init::ones_(weight);
}

void FusedRMSNormImpl::pretty_print(std::ostream& stream) const {
  print(stream, "mezzo::nn::FusedRMSNorm", options);
}

at::Tensor FusedRMSNormImpl::forward(const at::Tensor& x) {
  return fused_rms_norm(x, options.normalized_shape, weight, options.eps, options.memory_efficient);
}

}  // namespace mezzo::nn
