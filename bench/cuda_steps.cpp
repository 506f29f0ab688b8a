#include "cuda_steps.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "core/torch.h"
#include "cuda_timing.h"
#include "mezzo/optim.h"
#include "optim/step_context.h"
#include "parameter_lists.h"

namespace mezzo::bench {
namespace {

using Sizes = std::vector<std::vector<std::int64_t>>;

// BERT-large's list: 335 million parameters.
Sizes transformer(std::int64_t layers, std::int64_t width, std::int64_t vocabulary,
                  std::int64_t length) {
  Sizes sizes{{vocabulary, width}, {length, width}, {width}, {width}};
  for (std::int64_t i = 0; i < layers; ++i) {
    for (const auto& size : Sizes{{width},
                                  {width},
                                  {3 * width, width},
                                  {3 * width},
                                  {width, width},
                                  {width},
                                  {width},
                                  {width},
                                  {4 * width, width},
                                  {4 * width},
                                  {width, 4 * width},
                                  {width}}) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

// Parameters, gradients and what the peers need beside them, on the device.
struct List {
  std::vector<at::Tensor> params, grads, low_grads, shadows, m, v, steps;
  at::Tensor found, inv_scale, scale, growth;
  std::int64_t elements = 0;

  explicit List(const Sizes& sizes) {
    const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    for (const auto& size : sizes) {
      params.push_back(at::randn(size, options).mul_(0.02).requires_grad_(true));
      grads.push_back(at::randn(size, options).mul_(0.01));
      low_grads.push_back(grads.back().to(at::kHalf));
      shadows.push_back(params.back().detach().to(at::kHalf));
      m.push_back(at::zeros_like(grads.back()));
      v.push_back(at::zeros_like(grads.back()));
      steps.push_back(at::ones({}, options));  // the peers' counters, of a first step
      elements += params.back().numel();
      params.back().mutable_grad() = grads.back();
    }
    found = at::zeros({1}, options);
    inv_scale = at::full({1}, 1.0, options);
    scale = at::full({1}, 1.0, options);
    growth = at::zeros({1}, options.dtype(at::kInt));
  }
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> result;
    for (const at::Tensor& param : params) result.push_back(param.detach());
    return result;
  }
};

// Lends low gradients and shadows, as mixed precision does.
class CudaLender final : public optim::StepContext {
 public:
  CudaLender(const List& list, bool gradients)
      : copies_(list.shadows), grads_(gradients ? list.low_grads : std::vector<at::Tensor>()) {}
  // Asked in the order of the parameters.
  optim::LowCopy low_copy(const at::Tensor&) override {
    const std::size_t i = next_++;
    return {grads_.empty() ? nullptr : &grads_[i], &copies_[i], std::nullopt};
  }
  void stepped(bool) override { next_ = 0; }

 private:
  std::vector<at::Tensor> copies_, grads_;
  std::size_t next_ = 0;
};

using Step = std::function<void()>;

template <typename Optimizer>
Step checked(Optimizer& optimizer, List& list) {
  return [&] { optim::step_checked(optimizer, list.found, list.inv_scale); };
}

// LibTorch's strongest: check and unscale, one fused step, and the copies that mixed precision
// adds.
Step fused_adamw(const List& list, bool low_grads, bool shadows) {
  return [&list, low_grads, shadows, params = list.values(), found = list.found]() mutable {
    if (low_grads) at::_foreach_copy_(list.grads, list.low_grads);
    at::_amp_foreach_non_finite_check_and_unscale_(list.grads, found, list.inv_scale);
    at::_fused_adamw_(params, list.grads, list.m, list.v, {}, list.steps, 1e-3, 0.9, 0.999, 0.01,
                      1e-8, false, false, std::nullopt, found);
    if (shadows) at::_foreach_copy_(list.shadows, params);
  };
}

// The default of torch.optim on a GPU in Python: foreach operators one after the other, after
// a scaler that reads the flag. All parameters are at the same step, which spares it lists of
// numbers.
Step foreach_adamw(const List& list) {
  return [&list, params = list.values(), found = list.found, step = 0]() mutable {
    at::_amp_foreach_non_finite_check_and_unscale_(list.grads, found, list.inv_scale);
    if (found.item<float>() != 0) return;
    ++step;
    at::_foreach_mul_(params, 1 - 1e-3 * 0.01);
    at::_foreach_lerp_(list.m, list.grads, 1 - 0.9);
    at::_foreach_mul_(list.v, 0.999);
    at::_foreach_addcmul_(list.v, list.grads, list.grads, 1 - 0.999);
    const std::vector<at::Tensor> roots = at::_foreach_sqrt(list.v);
    at::_foreach_div_(roots, std::sqrt(1 - std::pow(0.999, step)));
    at::_foreach_add_(roots, 1e-8);
    at::_foreach_addcdiv_(params, list.m, roots, -1e-3 / (1 - std::pow(0.9, step)));
  };
}

Step fused_sgd(const List& list) {
  return [&list, params = list.values(), found = list.found]() mutable {
    at::_amp_foreach_non_finite_check_and_unscale_(list.grads, found, list.inv_scale);
    at::_fused_sgd_(params, list.grads, list.m, 1e-4, 0.9, 0.1, 0.0, false, false, false,
                    std::nullopt, found);
  };
}

template <typename Optimizer>
Step of_torch(Optimizer& optimizer, const List& list) {
  return [&optimizer, &list, found = list.found]() mutable {
    at::_amp_foreach_non_finite_check_and_unscale_(list.grads, found, list.inv_scale);
    optimizer.step();
  };
}

constexpr const char* kFused = "LibTorch's check and fused step";
constexpr const char* kForeach = "LibTorch's check and foreach operators";
constexpr const char* kPlain = "torch::optim with the check";

/// The ratios to be reached: against LibTorch's fused step, the same with 16-bit gradients and
/// copies, foreach operators, and torch::optim. Bytes an element bound the first two: with float
/// gradients 32 against 36 (LibTorch's check writes what it unscales), with 16-bit gradients and
/// copies 30 against 48, for SGD 24 against 28. Ten thousand small tensors are the host's work on
/// both sides; captured, they are the device's.
struct Targets {
  double fused, low, foreach, plain;
};

void adamw_cases(Report& report, const std::string& name, const Sizes& sizes, int repeats,
                 double bandwidth, const Targets& targets) {
  List list(sizes);
  const auto elements = static_cast<double>(list.elements);
  const auto options = optim::FusedAdamOptions(1e-3).weight_decay(0.01);
  optim::FusedAdam plain(list.params, options);
  const Step ours = checked(plain, list);
  add_on_cuda(report, "opt.adamw." + name, kFused,
              interleave_on_cuda(ours, fused_adamw(list, false, false), repeats), targets.fused,
              32 * elements, bandwidth);
  add_on_cuda(report, "opt.adamw." + name, kForeach,
              interleave_on_cuda(ours, foreach_adamw(list), repeats), targets.foreach,
              32 * elements, bandwidth);
  torch::optim::AdamW adamw(list.params, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  add_on_cuda(report, "opt.adamw." + name, kPlain,
              interleave_on_cuda(ours, of_torch(adamw, list), std::min(repeats, 5)), targets.plain,
              32 * elements, bandwidth);
  optim::FusedAdam low(list.params, options);
  optim::set_step_context(low, std::make_shared<CudaLender>(list, true));
  add_on_cuda(report, "opt.adamw." + name + ".half_grads_and_copy",
              std::string(kFused) + ", gradients and weights copied",
              interleave_on_cuda(checked(low, list), fused_adamw(list, true, true), repeats),
              targets.low, 30 * elements, bandwidth);
}

void sgd_cases(Report& report, int repeats, double bandwidth) {
  List list(resnet50().sizes);
  const auto bytes = 24 * static_cast<double>(list.elements);
  optim::FusedSGD sgd(list.params, optim::FusedSGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
  const Step ours = checked(sgd, list);
  add_on_cuda(report, "opt.sgdm.resnet50", kFused,
              interleave_on_cuda(ours, fused_sgd(list), repeats), 1.12, bytes, bandwidth);
  torch::optim::SGD plain(list.params,
                          torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
  add_on_cuda(report, "opt.sgdm.resnet50", kPlain,
              interleave_on_cuda(ours, of_torch(plain, list), repeats), 12, bytes, bandwidth);
}

// Check, step and the scale's update: called, and as one captured graph.
void captured_step(Report& report, const std::string& name, const Sizes& sizes, int repeats,
                   double bandwidth, std::optional<double> target) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  const c10::StreamGuard side(guard.getStreamFromGlobalPool(c10::Device(at::kCUDA, 0)));
  auto* stream = static_cast<cudaStream_t>(side.current_stream().native_handle());
  List list(sizes);
  optim::FusedAdam adam(list.params, optim::FusedAdamOptions(1e-3));
  const Step called = [&] {
    list.found.zero_();
    optim::step_checked(adam, list.found, list.inv_scale);
    at::_amp_update_scale_(list.scale, list.growth, list.found, 2.0, 0.5, 2000);
  };
  for (int i = 0; i < 3; ++i) called();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  const bool captured =
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess &&
      (called(), cudaStreamEndCapture(stream, &graph)) == cudaSuccess &&
      cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess;
  if (!captured) {
    raise("bench", "the step could not be captured: ", cudaGetErrorString(cudaGetLastError()));
  }
  const Step replayed = [&] { cudaGraphLaunch(replay, stream); };
  add_on_cuda(report, "step.sync." + name + ": captured, replayed", "the same step, called",
              interleave_on_cuda(replayed, called, repeats), target,
              32 * static_cast<double>(list.elements), bandwidth);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

}  // namespace

void run_cuda_steps(Report& report, int repeats, double bandwidth) {
  const at::NoGradGuard no_grad;
  adamw_cases(report, "gpt2", gpt2().sizes, repeats, bandwidth, {1.10, 1.45, 3, 6});
  adamw_cases(report, "bert_large", transformer(24, 1024, 30522, 512), repeats, bandwidth,
              {1.10, 1.45, 3, 6});
  adamw_cases(report, "10000_tensors", many_small().sizes, std::min(repeats, 5), bandwidth,
              {1, 1, 50, 1000});
  sgd_cases(report, repeats, bandwidth);
  captured_step(report, "resnet50", resnet50().sizes, repeats, bandwidth, std::nullopt);
  captured_step(report, "10000_tensors", many_small().sizes, repeats, bandwidth, 15);
}

}  // namespace mezzo::bench
