// Batch norm for several ranks without the other ranks: what its kernels take, against those of
// LibTorch's SyncBatchNorm.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>

#include "core/torch.h"
#include "cuda_steps.h"
#include "cuda_timing.h"
#include "parallel/batch_norm_steps.h"

namespace mezzo::bench {
namespace {

constexpr double kEps = 1e-5;

void batch_norm_case(Report& report, const at::Tensor& x, const std::string& name, int repeats,
                     double bandwidth) {
  const at::Tensor dy = at::randn_like(x);
  const std::int64_t channels = x.size(1);
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const at::Tensor weight = at::ones({channels}, options);
  const at::Tensor bias = at::zeros({channels}, options);
  const auto elements = static_cast<double>(x.numel());
  const double count = elements / static_cast<double>(channels);

  const auto step_of = [&](const at::Tensor& moments) {
    return parallel::BatchStep{x,      moments[0], moments[1].div(count).add(kEps).rsqrt(),
                               weight, bias,       false};
  };
  const auto forward = [&] {
    parallel::batch_normalised(step_of(parallel::batch_moments(x)), at::Tensor());
  };
  const auto their_forward = [&] {
    const auto [mean, rstd] = at::batch_norm_stats(x, kEps);
    at::batch_norm_elemt(x, weight, bias, mean, rstd, kEps);
  };
  add_on_cuda(report, "syncbn.forward.bfloat16 " + name, "LibTorch's kernels of SyncBatchNorm",
              interleave_on_cuda(forward, their_forward, repeats), 1.0, 6 * elements, bandwidth);

  const parallel::BatchStep step = step_of(parallel::batch_moments(x));
  const auto backward = [&] {
    const at::Tensor sums = parallel::batch_gradient_sums(step, dy, at::Tensor());
    parallel::batch_gradients(step, dy, at::Tensor(), sums.div(count), true, false);
  };
  const auto [mean, rstd] = at::batch_norm_stats(x, kEps);
  const at::Tensor kept_mean = mean;
  const at::Tensor kept_rstd = rstd;
  const at::Tensor counts = at::full({1}, count, options.dtype(at::kInt));
  const auto their_backward = [&] {
    const auto [sum_dy, sum_dy_xmu, dweight, dbias] =
        at::batch_norm_backward_reduce(dy, x, kept_mean, kept_rstd, weight, true, true, true);
    at::batch_norm_backward_elemt(dy, x, kept_mean, kept_rstd, weight, sum_dy, sum_dy_xmu, counts);
  };
  add_on_cuda(report, "syncbn.backward.bfloat16 " + name, "LibTorch's kernels of SyncBatchNorm",
              interleave_on_cuda(backward, their_backward, repeats), 1.0, 10 * elements, bandwidth);
}

}  // namespace

void run_cuda_batch_norms(Report& report, int repeats, double bandwidth) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  for (const std::int64_t channels : {64, 256, 1024}) {
    const std::int64_t side = channels == 64 ? 112 : channels == 256 ? 56 : 14;
    const at::Tensor x = at::randn({128, channels, side, side}, options);
    const std::string name =
        "128x" + std::to_string(channels) + "x" + std::to_string(side) + "x" + std::to_string(side);
    batch_norm_case(report, x, name, repeats, bandwidth);
    batch_norm_case(report, x.contiguous(at::MemoryFormat::ChannelsLast), name + " channels-last",
                    repeats, bandwidth);
  }
}

}  // namespace mezzo::bench
