#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "bridge/device.h"
#include "core/torch.h"
#include "cuda_steps.h"
#include "cuda_timing.h"
#include "mezzo/nn.h"
#include "nn/norm_call.h"

namespace mezzo::bench {
namespace {

struct LayerCase {
  std::int64_t rows, columns;
};
// About 100 MB of bfloat16 each: more than the caches hold.
constexpr LayerCase kCases[] = {
    {65536, 768}, {65536, 1024}, {16384, 4096}, {8192, 8192}, {4096, 16384}};

void norm_case(Report& report, const LayerCase& c, int repeats, double bandwidth) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({c.rows, c.columns}, options);
  const at::Tensor dy = at::randn({c.rows, c.columns}, options);
  const at::Tensor weight = at::ones({c.columns}, options);
  const at::Tensor bias = at::zeros({c.columns}, options);
  const at::Tensor wide_weight = weight.to(at::kFloat);
  const at::Tensor wide_bias = bias.to(at::kFloat);
  const auto elements = static_cast<double>(x.numel());
  const std::string name = std::to_string(c.rows) + "x" + std::to_string(c.columns);
  const auto ours = [&] { nn::fused_layer_norm(x, {c.columns}, weight, bias); };
  add_on_cuda(
      report, "ln.forward.bfloat16 " + name, "LibTorch, bfloat16",
      interleave_on_cuda(
          ours, [&] { at::native_layer_norm(x, {c.columns}, weight, bias, 1e-5); }, repeats),
      1.3, 4 * elements, bandwidth);
  // A float32 list for comparison: up, norm, down.
  const auto by_list = [&] {
    at::layer_norm(x.to(at::kFloat), {c.columns}, wide_weight, wide_bias, 1e-5).to(at::kBFloat16);
  };
  add_on_cuda(report, "ln.forward.bfloat16 " + name, "LibTorch, in float32",
              interleave_on_cuda(ours, by_list, repeats), 3.5, 4 * elements, bandwidth);

  const auto [y, mean, rstd] = at::native_layer_norm(x, {c.columns}, weight, bias, 1e-5);
  nn::NormCall call{"bench", false, 1e-5, false};
  call.rows = c.rows;
  call.columns = c.columns;
  const nn::NormSaved saved{x, weight, bias, mean.to(at::kFloat).reshape({c.rows}),
                            rstd.to(at::kFloat).reshape({c.rows})};
  const at::Tensor kept_mean = mean;
  const at::Tensor kept_rstd = rstd;
  const auto native = [&] {
    at::native_layer_norm_backward(dy, x, {c.columns}, kept_mean, kept_rstd, weight, bias,
                                   {true, true, true});
  };
  const auto our_backward = [&] { nn::norm_backward_by_kernels(call, saved, dy, {}); };
  add_on_cuda(report, "ln.backward.bfloat16 " + name, "LibTorch, bfloat16",
              interleave_on_cuda(our_backward, native, repeats), 1.8, 6 * elements, bandwidth);
  const at::Tensor wide_x = x.to(at::kFloat);
  const auto [wide_y, wide_mean, wide_rstd] =
      at::native_layer_norm(wide_x, {c.columns}, wide_weight, wide_bias, 1e-5);
  const at::Tensor wide_kept_mean = wide_mean;
  const at::Tensor wide_kept_rstd = wide_rstd;
  const auto backward_by_list = [&] {
    const auto [dx, dweight, dbias] =
        at::native_layer_norm_backward(dy.to(at::kFloat), wide_x, {c.columns}, wide_kept_mean,
                                       wide_kept_rstd, wide_weight, wide_bias, {true, true, true});
    dx.to(at::kBFloat16);
  };
  add_on_cuda(report, "ln.backward.bfloat16 " + name, "LibTorch, in float32",
              interleave_on_cuda(our_backward, backward_by_list, repeats), 3, 6 * elements,
              bandwidth);
}

void add_norm(Report& report, int repeats, double bandwidth) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const at::Tensor stream = at::randn({65536, 768}, options);
  const at::Tensor x = at::randn({65536, 768}, options.dtype(at::kBFloat16));
  const at::Tensor weight = at::ones({768}, options);
  const at::Tensor bias = at::zeros({768}, options);
  const auto ours = [&] { nn::fused_add_layer_norm(x, stream, {768}, weight, bias); };
  const auto peer = [&] {
    const at::Tensor sum = stream.add(x);
    at::layer_norm(sum, {768}, weight, bias, 1e-5).to(at::kBFloat16);
  };
  add_on_cuda(report, "addln.forward 65536x768", "LibTorch's add, norm and cast",
              interleave_on_cuda(ours, peer, repeats), 1.8,
              12 * static_cast<double>(stream.numel()), bandwidth);
}

}  // namespace

void run_cuda_layers(Report& report, int repeats, double bandwidth) {
  const at::NoGradGuard no_grad;
  for (const LayerCase& c : kCases) norm_case(report, c, repeats, bandwidth);
  add_norm(report, repeats, bandwidth);
}

}  // namespace mezzo::bench
