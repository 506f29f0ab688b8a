// Steps on a device whose kernels of ours were refused: LibTorch's `_fused_` operators take them,
// its other operators take what those cannot.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bridge/device.h"
#include "mezzo/optim.h"
#include "optim/step_access.h"
#include "pretend/device.h"

namespace mezzo::optim {
namespace {

using Make = std::function<std::unique_ptr<FusedOptimizer>(std::vector<at::Tensor>)>;

struct Setting {
  const char* name;
  Make make;
  bool fused = true;  // by one operator a list
  at::ScalarType type = at::kFloat;
};

template <typename Optimizer, typename Options>
Make made_by(Options options) {
  return [options](std::vector<at::Tensor> params) {
    return std::make_unique<Optimizer>(std::move(params), options);
  };
}

std::vector<Setting> settings() {
  const auto adam = [](double lr) { return FusedAdamOptions(lr).weight_decay(0.1); };
  const auto sgd = [](double lr) { return FusedSGDOptions(lr).weight_decay(0.1); };
  return {
      {"AdamW", made_by<FusedAdam>(adam(0.01))},
      {"AdamWOfDoubles", made_by<FusedAdam>(adam(0.01)), true, at::kDouble},
      {"AdamWOfLowParameters", made_by<FusedAdam>(adam(0.01)), false, at::kBFloat16},
      {"Adam", made_by<FusedAdam>(adam(0.01).adam_w_mode(false))},
      {"AmsGrad", made_by<FusedAdam>(adam(0.01).amsgrad(true))},
      {"AdamWithoutCorrection", made_by<FusedAdam>(adam(0.01).bias_correction(false)), false},
      {"AdamWithEpsInside", made_by<FusedAdam>(adam(0.01).eps_inside_sqrt(true)), false},
      {"PlainSgd", made_by<FusedSGD>(sgd(0.1))},
      {"SgdWithMomentum", made_by<FusedSGD>(sgd(0.1).momentum(0.9).dampening(0.2))},
      {"Nesterov", made_by<FusedSGD>(sgd(0.1).momentum(0.9).nesterov(true))},
      {"SgdThatClips", made_by<FusedSGD>(sgd(0.1).momentum(0.9).max_grad_norm(0.5))},
      {"SgdThatDecaysLast", made_by<FusedSGD>(sgd(0.1).momentum(0.9).wd_after_momentum(true)),
       false},
      {"Adagrad", made_by<FusedAdagrad>(FusedAdagradOptions(0.1).lr_decay(0.1).weight_decay(0.1))},
      {"DecoupledAdagrad",
       made_by<FusedAdagrad>(FusedAdagradOptions(0.1).adagrad_w_mode(true).weight_decay(0.1)),
       false},
  };
}

/// CUDA devices without kernels of ours.
class WithoutKernels {
 public:
  WithoutKernels() { bridge::choose_kernels(at::kCUDA, nullptr); }
  ~WithoutKernels() { bridge::choose_usual_kernels(at::kCUDA); }
  WithoutKernels(const WithoutKernels&) = delete;
  WithoutKernels& operator=(const WithoutKernels&) = delete;
};

class LibrarySteps : public testing::TestWithParam<Setting> {
 protected:
  static constexpr int kParameters = 24;

  void TearDown() override { pretend::finish(); }

  static std::vector<at::Tensor> parameters(const at::Device& device) {
    torch::manual_seed(3);
    std::vector<at::Tensor> params;
    for (int i = 0; i < kParameters; ++i) {
      const at::Tensor values = i % 3 == 0 ? torch::randn({5, 1 + i}) : torch::randn({i * 7});
      params.push_back(values.to(device, GetParam().type).requires_grad_());
    }
    return params;
  }
  /// Gradients of a step, some of them not laid out as their parameters.
  static void give_gradients(const std::vector<at::Tensor>& params, int step, double scale) {
    torch::manual_seed(static_cast<std::uint64_t>(10 + step));
    for (const at::Tensor& param : params) {
      at::Tensor grad = torch::randn(param.sizes(), at::kDouble) * scale;
      if (param.dim() == 2) grad = grad.t().contiguous().t();
      param.mutable_grad() = grad.to(param.device(), param.scalar_type());
    }
  }
  /// Three steps with scaled gradients; the third has parameters that step for the first time.
  static void train(FusedOptimizer& optimizer, const std::vector<at::Tensor>& params) {
    const at::Tensor inverse =
        torch::full({}, 1.0 / 64, params.front().options().dtype(at::kFloat));
    for (int step = 0; step < 3; ++step) {
      give_gradients(params, step, 64);
      if (step < 2) params.back().mutable_grad() = at::Tensor();
      StepAccess::step(optimizer, {}, inverse);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Optimizers, LibrarySteps, testing::ValuesIn(settings()),
                         [](const auto& of) { return std::string(of.param.name); });

TEST_P(LibrarySteps, AreThoseOfOurLoops) {
  const WithoutKernels none;
  const std::vector<at::Tensor> expected = parameters(at::kCPU);
  train(*GetParam().make(expected), expected);
  const std::vector<at::Tensor> params = parameters(pretend::device());
  const auto optimizer = GetParam().make(params);
  train(*optimizer, params);
  const double digit = GetParam().type == at::kBFloat16 ? 0x1p-8
                       : GetParam().type == at::kDouble ? 1e-12
                                                        : 1e-5;
  for (std::size_t i = 0; i < params.size(); ++i) {
    EXPECT_TRUE(at::allclose(params[i].detach().cpu(), expected[i].detach(), digit, digit))
        << "parameter " << i;
  }
}

TEST_P(LibrarySteps, LeaveGradientsAsTheyAre) {
  const WithoutKernels none;
  const std::vector<at::Tensor> params = parameters(pretend::device());
  const auto optimizer = GetParam().make(params);
  give_gradients(params, 0, 64);
  std::vector<at::Tensor> before;
  for (const at::Tensor& param : params) before.push_back(param.grad().clone());
  StepAccess::step(*optimizer, {}, torch::full({}, 1.0 / 64, pretend::device()));
  for (std::size_t i = 0; i < params.size(); ++i)
    EXPECT_TRUE(torch::equal(params[i].grad(), before[i]));
}

TEST_P(LibrarySteps, AreOneCallForAListWhereLibTorchHasIt) {
  const WithoutKernels none;
  std::vector<at::Tensor> params;
  for (int i = 0; i < kParameters; ++i) {
    params.push_back(torch::ones({4}, at::TensorOptions(pretend::device()).dtype(GetParam().type)));
    params.back().requires_grad_();
    params.back().mutable_grad() = torch::ones_like(params.back());
  }
  const auto optimizer = GetParam().make(params);
  optimizer->step();  // makes the states
  const pretend::Watch watch;
  optimizer->step();
  const bool clips = std::string(GetParam().name) == "SgdThatClips";
  const std::int64_t of_norm = clips ? 3 * kParameters : 0;
  if (GetParam().fused) {
    EXPECT_LE(watch.counts().launches - of_norm, 4);
  } else {
    EXPECT_GE(watch.counts().launches, 4 * kParameters);
  }
}

}  // namespace
}  // namespace mezzo::optim
