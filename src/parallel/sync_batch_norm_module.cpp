#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "core/torch.h"
#include "mezzo/sync_batch_norm.h"
#include "parallel/sync_batch_norm.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInSyncBatchNormModule = "SyncBatchNorm";

void check_options(const SyncBatchNormOptions& options) {
  if (options.num_features < 1) {
    raise<ConfigError>(kInSyncBatchNormModule, "num_features is ", options.num_features,
                       "; expected at least 1");
  }
  if (!(options.eps >= 0)) {
    raise<ConfigError>(kInSyncBatchNormModule, "eps is ", options.eps, "; expected at least 0");
  }
  if (options.momentum && !(*options.momentum >= 0 && *options.momentum <= 1)) {
    raise<ConfigError>(kInSyncBatchNormModule, "momentum is ", *options.momentum,
                       "; expected 0 to 1, or none");
  }
}

SyncBatchNormOptions of_features(std::int64_t num_features) {
  SyncBatchNormOptions options;
  options.num_features = num_features;
  return options;
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(SyncBatchNormOptions given) : options(std::move(given)) {
  SyncBatchNormImpl::reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(std::int64_t num_features)
    : SyncBatchNormImpl(of_features(num_features)) {}

SyncBatchNormImpl::SyncBatchNormImpl(SyncBatchNormOptions given,
                                     const detail::BatchNormTensors& tensors)
    : options(std::move(given)) {
  check_options(options);
  adopt(tensors);
}

void SyncBatchNormImpl::reset() {
  check_options(options);
  const std::int64_t features = options.num_features;
  detail::BatchNormTensors tensors;
  if (options.affine) {
    tensors.weight = at::empty({features}).requires_grad_(true);
    tensors.bias = at::empty({features}).requires_grad_(true);
  }
  if (options.track_running_stats) {
    tensors.running_mean = at::empty({features});
    tensors.running_var = at::empty({features});
    tensors.num_batches_tracked = at::empty({}, at::kLong);
  }
  adopt(tensors);
  reset_parameters();
}

void SyncBatchNormImpl::adopt(const detail::BatchNormTensors& tensors) {
  const auto parameter = [&](const char* name, const at::Tensor& tensor) {
    return register_parameter(name, tensor, tensor.defined() && tensor.requires_grad());
  };
  weight = parameter("weight", tensors.weight);
  bias = parameter("bias", tensors.bias);
  running_mean = register_buffer("running_mean", tensors.running_mean);
  running_var = register_buffer("running_var", tensors.running_var);
  num_batches_tracked = register_buffer("num_batches_tracked", tensors.num_batches_tracked);
}

void SyncBatchNormImpl::reset_parameters() {
  reset_running_stats();
  if (!options.affine) return;
  const at::NoGradGuard no_grad;
  weight.fill_(1);
  bias.zero_();
}

void SyncBatchNormImpl::reset_running_stats() {
  if (!options.track_running_stats) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  const auto yes_or_no = [](bool value) { return value ? "true" : "false"; };
  stream << "mezzo::parallel::SyncBatchNorm(" << options.num_features << ", eps=" << options.eps
         << ", momentum=";
  if (options.momentum) {
    stream << *options.momentum;
  } else {
    stream << "none";
  }
  stream << ", affine=" << yes_or_no(options.affine)
         << ", track_running_stats=" << yes_or_no(options.track_running_stats)
         << ", channel_last=" << yes_or_no(options.channel_last)
         << ", fuse_relu=" << yes_or_no(options.fuse_relu) << ')';
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input, const at::Tensor& z) {
  const bool tracks = options.track_running_stats && running_mean.defined();
  BatchNormCall call;
  call.where = kInSyncBatchNormModule;
  call.x = input;
  call.channel_last = options.channel_last;
  call.z = z;
  call.weight = weight;
  call.bias = bias;
  call.running_mean = running_mean;
  call.running_var = running_var;
  call.batch_statistics = is_training() || !tracks;
  call.eps = options.eps;
  call.relu = options.fuse_relu;
  if (call.batch_statistics) call.group = statistics_group(options.process_group);
  const bool moves = is_training() && tracks;
  if (moves && options.momentum) call.momentum = *options.momentum;
  if (moves && !options.momentum) {
    if (num_batches_tracked.is_cpu()) {
      call.momentum = 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>() + 1);
    } else {
      call.batches = num_batches_tracked;  // the host would wait for it
    }
  }
  if (input.defined() && input.dim() > 0) {
    const bool last = options.channel_last || input.dim() == 1;
    const std::int64_t channels = input.size(last ? -1 : 1);
    if (channels != options.num_features) {
      raise<ConfigError>(kInSyncBatchNormModule, "the input has ", channels, " channels (sizes ",
                         input.sizes(), "); expected num_features = ", options.num_features);
    }
  }
  at::Tensor y = sync_batch_norm(call);
  if (moves) num_batches_tracked.add_(1);
  return y;
}

}  // namespace mezzo::parallel
