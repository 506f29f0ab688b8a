// Fused optimizers through the CUDA kernels: compiled for the processor and, where there is a GPU,
// on it. A CPU's optimizer goes along as the reference.
#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/optimizer_kinds.h"
#include "optim/step_context.h"
#include "optim/trajectory.h"
#include "support/cuda_places.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;
using testing_cuda::Place;

class OnCuda : public testing::TestWithParam<std::tuple<Place, Kind>> {
 protected:
  void SetUp() override {
    const std::string why = place() == Place::kGpu ? testing_cuda::why_no_gpu() : "";
    if (!why.empty()) GTEST_SKIP() << why;
  }
  Place place() const { return std::get<0>(GetParam()); }
  const Kind& kind() const { return std::get<1>(GetParam()); }
  at::Device device() const { return testing_cuda::device_of(place()); }

  /// The same parameters as make_parameters() gives, on the device.
  std::vector<at::Tensor> parameters(at::ScalarType type = at::kFloat) const {
    std::vector<at::Tensor> params = make_parameters(type);
    for (at::Tensor& param : params) {
      param = param.detach().to(device()).detach().requires_grad_(true);
    }
    return params;
  }
  /// By the kernels that are under test.
  template <typename Step>
  void there(const Step& step) const {
    const testing_cuda::KernelsAt kernels(place());
    step();
  }
  at::Tensor number(double value) const {
    return torch::full({1}, value, torch::TensorOptions(device()).dtype(torch::kFloat));
  }
};
INSTANTIATE_TEST_SUITE_P(Optim, OnCuda,
                         testing::Combine(testing::Values(Place::kEmulation, Place::kGpu),
                                          testing::ValuesIn(kinds())),
                         [](const auto& row) {
                           return testing_cuda::name_of(std::get<0>(row.param)) + "_" +
                                  std::get<1>(row.param).name;
                         });

// Gradients of the reference, copied.
void copy_gradients(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i].mutable_grad() =
        from[i].grad().defined() ? from[i].grad().to(to[i].device()).clone() : at::Tensor();
  }
}

// Copies: what is emulated lies on the CPU already.
std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& param : params) result.push_back(param.detach().cpu().clone());
  return result;
}

TEST_P(OnCuda, GoesTheWayOfTheCpu) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kDouble}) {
    const auto params = parameters(type);
    const auto others = make_parameters(type);
    const auto ours = kind().make(params);
    const auto reference = kind().make(others);
    for (int step = 0; step < 8; ++step) {
      set_gradients(others, step);
      if (step < 3) others[1].mutable_grad() = at::Tensor();  // joins later
      copy_gradients(params, others);
      there([&] { ours->step_unless(number(0), number(0.5)); });
      reference->step_unless(torch::zeros({1}), torch::full({1}, 0.5));
    }
    EXPECT_LT(distance(on_cpu(params), others), type == at::kDouble ? 1e-11
                                                : type == at::kHalf ? 4e-3
                                                                    : 2e-5);
  }
}

TEST_P(OnCuda, SkipsByTheFlagOnTheDeviceAndCountsWhatWasTaken) {
  const auto params = parameters();
  const auto others = make_parameters();
  const auto ours = kind().make(params);
  const auto reference = kind().make(others);
  for (int step = 0; step < 6; ++step) {
    set_gradients(others, step);
    copy_gradients(params, others);
    const auto before = values(params);
    there([&] { ours->step_unless(number(1)); });
    EXPECT_TRUE(identical(params, before));
    there([&] { ours->step_unless(number(0)); });
    reference->step();
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);

  // The file counts the applied steps, and a CPU's optimizer goes on from it.
  std::stringstream file;
  torch::save(*ours, file);
  const auto more = on_cpu(params);
  for (const at::Tensor& param : more) param.requires_grad_(true);
  const auto loaded = kind().make(more);
  torch::load(*loaded, file);
  set_gradients(others, 6);
  copy_gradients(more, others);
  copy_gradients(params, others);
  loaded->step();
  reference->step();
  there([&] { ours->step(); });
  EXPECT_LT(distance(more, others), 2e-5);
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

TEST_P(OnCuda, GoesOnFromWhatACpuSaved) {
  const auto others = make_parameters();
  const auto reference = kind().make(others);
  for (int step = 0; step < 4; ++step) {
    set_gradients(others, step);
    reference->step();
  }
  std::stringstream file;
  torch::save(*reference, file);
  std::vector<at::Tensor> params;
  for (const at::Tensor& param : others) {
    params.push_back(param.detach().clone().to(device()).detach().requires_grad_(true));
  }
  const auto ours = kind().make(params);
  set_gradients(others, 4);
  copy_gradients(params, others);
  torch::load(*ours, file);
  for (int step = 4; step < 7; ++step) {
    set_gradients(others, step);
    copy_gradients(params, others);
    there([&] { ours->step(); });
    reference->step();
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

TEST_P(OnCuda, AFirstStepThatWasSkippedLeavesNoTrace) {
  const auto params = parameters();
  const auto others = make_parameters();
  const auto ours = kind().make(params);
  set_gradients(others, 0);
  copy_gradients(params, others);
  there([&] { ours->step_unless(number(1)); });
  std::stringstream file;
  torch::save(*ours, file);
  const auto more = on_cpu(params);
  for (const at::Tensor& param : more) param.requires_grad_(true);
  const auto loaded = kind().make(more);
  torch::load(*loaded, file);
  const auto reference = kind().make(others);
  for (int step = 1; step < 4; ++step) {
    set_gradients(others, step);
    copy_gradients(more, others);
    loaded->step();
    reference->step();
  }
  EXPECT_LT(distance(more, others), 2e-6);
}

TEST_P(OnCuda, CountsFromTheStartWhenItsStateIsCleared) {
  const auto params = parameters();
  const auto others = make_parameters();
  const auto ours = kind().make(params);
  auto reference = kind().make(others);
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      ours->state().clear();
      reference = kind().make(others);
    }
    set_gradients(others, step);
    copy_gradients(params, others);
    there([&] { ours->step(); });
    reference->step();
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

TEST_P(OnCuda, CountsOnWhenItsParametersGoToAnotherDevice) {
  auto params = parameters();
  const auto others = make_parameters();
  const auto ours = kind().make(params);
  const auto reference = kind().make(others);
  const auto go_to = [&](const at::Device& where) {
    for (at::Tensor& param : params) {
      param.mutable_grad() = at::Tensor();
      param.set_data(param.detach().to(where));
    }
  };
  for (int step = 0; step < 15; ++step) {
    const bool is_here = step >= 5 && step < 10;
    if (step == 5) go_to(at::kCPU);
    if (step == 10) go_to(device());
    set_gradients(others, step);
    copy_gradients(params, others);
    if (is_here) {
      ours->step();
    } else {
      there([&] { ours->step(); });
    }
    reference->step();
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

// Values and states under other keys, as when masters come and go.
void move_all(FusedOptimizer& optimizer, const std::vector<at::Tensor>& to) {
  settle_step_counts(optimizer);
  const at::NoGradGuard no_grad;
  auto& own = optimizer.param_groups()[0].params();
  for (std::size_t i = 0; i < to.size(); ++i) {
    at::Tensor(to[i]).copy_(own[i]);
    auto state = std::move(optimizer.state().at(own[i].unsafeGetTensorImpl()));
    optimizer.state().erase(own[i].unsafeGetTensorImpl());
    optimizer.state()[to[i].unsafeGetTensorImpl()] = std::move(state);
    own[i] = to[i];
  }
}

TEST_P(OnCuda, CountsOnWhenItsStatesGoToOtherKeysAndBack) {
  const auto params = parameters();
  const auto masters = parameters();
  const auto others = make_parameters();
  const auto ours = kind().make(params);
  const auto reference = kind().make(others);
  for (int step = 0; step < 15; ++step) {
    const auto& now = step >= 5 && step < 10 ? masters : params;
    if (step == 5 || step == 10) move_all(*ours, now);
    set_gradients(others, step);
    copy_gradients(now, others);
    there([&] { ours->step(); });
    reference->step();
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

TEST_P(OnCuda, LooksAtEveryGradientItself) {
  const auto params = parameters();
  const auto ours = kind().make(params);
  const auto others = make_parameters();
  set_gradients(others, 0);
  copy_gradients(params, others);
  params[5].mutable_grad()[19999] = INFINITY;
  const auto before = values(params);
  at::Tensor found = number(0);
  there([&] { step_checked(*ours, found, number(1)); });
  EXPECT_EQ(found.item<float>(), 1);
  EXPECT_TRUE(identical(params, before));
  params[5].mutable_grad()[19999] = 0;
  found = number(0);
  there([&] { step_checked(*ours, found, number(1)); });
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_FALSE(identical(params, before));
}

TEST_P(OnCuda, AFileThatDoesNotFitLeavesTheCountsAlone) {
  const auto params = parameters();
  const auto others = make_parameters();
  const auto ours = kind().make(params);
  const auto reference = kind().make(others);
  const auto steps = [&](int from, int to) {
    for (int step = from; step < to; ++step) {
      set_gradients(others, step);
      copy_gradients(params, others);
      there([&] { ours->step(); });
      reference->step();
    }
  };
  steps(0, 5);
  std::stringstream file;
  torch::save(*kind().make({params[0]}), file);
  EXPECT_THROW(torch::load(*ours, file), Error);
  steps(5, 8);
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

class FunctionsOnCuda : public testing_cuda::AtPlaces {
 protected:
  std::vector<at::Tensor> there(const std::vector<at::Tensor>& tensors) const {
    std::vector<at::Tensor> result;
    for (const at::Tensor& tensor : tensors) {
      result.push_back(tensor.detach().to(device()).clone().detach().requires_grad_(true));
      if (tensor.grad().defined()) {
        result.back().mutable_grad() = tensor.grad().to(device()).clone();
      }
    }
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Optim, FunctionsOnCuda, testing::Values(Place::kEmulation, Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& param : params) result.push_back(param.grad().cpu());
  return result;
}

TEST_P(FunctionsOnCuda, ClippingAgreesWithTheProcessor) {
  for (const double type : {2.0, 1.0, double(INFINITY)}) {
    for (const double most : {0.01, 1000.0}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kDouble}) {
        const auto params = make_parameters(dtype);
        set_gradients(params, 1);
        const auto others = there(params);
        const auto expected = clip_grad_norm_(params, most, type).item<double>();
        {
          const testing_cuda::KernelsAt kernels(place());
          const at::Tensor norm = clip_grad_norm_(others, most, type);
          EXPECT_EQ(norm.device(), others[0].device());
          EXPECT_NEAR(norm.item<double>(), expected, 1e-5 * expected);
        }
        EXPECT_LT(distance(gradients_of(others), gradients_of(params)),
                  dtype == at::kHalf ? 1e-3 : 1e-6);
      }
    }
  }
}

TEST_P(FunctionsOnCuda, AClippingThatMayThrowChangesNothing) {
  auto params = there(make_parameters());
  for (at::Tensor& param : params) param.mutable_grad() = torch::ones_like(param.detach());
  params[5].mutable_grad()[7] = NAN;
  const testing_cuda::KernelsAt kernels(place());
  EXPECT_THROW(clip_grad_norm_(params, 1, 2, true), Error);
  EXPECT_EQ(params[0].grad().sum().item<float>(), 17 * 33);
  clip_grad_norm_(params, 1);
  EXPECT_TRUE(params[0].grad().isnan().all().item<bool>());
}

TEST_P(FunctionsOnCuda, ListOperationsLeaveTheirAnswersOnTheDevice) {
  const auto params = make_parameters();
  std::vector<at::Tensor> in, out, expected;
  for (const at::Tensor& param : params) {
    in.push_back(param.detach().to(device()).clone());
    out.push_back(torch::empty_like(in.back(), at::kHalf));
    expected.push_back((param.detach() * 3).to(at::kHalf));
  }
  const testing_cuda::KernelsAt kernels(place());
  for (const at::ScalarType of_flag : {at::kFloat, at::kInt}) {
    for (const at::Device& where : {device(), at::Device(at::kCPU)}) {
      at::Tensor found = torch::zeros({1}, torch::TensorOptions(where).dtype(of_flag));
      multi_tensor_scale(in, out, 3, found);
      EXPECT_EQ(found.item<float>(), 0);
      for (std::size_t i = 0; i < in.size(); ++i)
        EXPECT_TRUE(torch::equal(out[i].cpu(), expected[i]));
      multi_tensor_axpby(in, in, out, 2, 1, found);
      EXPECT_EQ(found.item<float>(), 0);
      multi_tensor_axpby(in, in, out, 1e6, 1, found);
      EXPECT_EQ(found.item<float>(), 1);
      multi_tensor_scale(in, out, 3, found);
      EXPECT_EQ(found.item<float>(), 1) << "it is never cleared";
    }
  }
  const auto [norm, norms] = multi_tensor_l2norm(in, true);
  EXPECT_EQ(norm.device(), in[0].device());
  EXPECT_EQ(norms.scalar_type(), at::kFloat);
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_NEAR(norms[static_cast<std::int64_t>(i)].item<double>(), params[i].norm().item<double>(),
                1e-4);
  }
}

TEST_P(FunctionsOnCuda, LARCAgreesWithTheProcessor) {
  const auto params = make_parameters();
  set_gradients(params, 1);
  params[1].mutable_grad().zero_();
  const auto others = there(params);
  const auto options = FusedSGDOptions(0.05).weight_decay(0.1).momentum(0.9);
  FusedSGD ours(others, options);
  FusedSGD reference(params, options);
  LARC(reference, {.trust_coefficient = 0.05}).step();
  {
    const testing_cuda::KernelsAt kernels(place());
    LARC(ours, {.trust_coefficient = 0.05}).step();
  }
  EXPECT_LT(distance(on_cpu(others), params), 1e-6);
}

class AdamOnCuda : public OnCuda {};
INSTANTIATE_TEST_SUITE_P(Optim, AdamOnCuda,
                         testing::Combine(testing::Values(Place::kEmulation, Place::kGpu),
                                          testing::Values(kinds()[0])),
                         [](const auto& row) {
                           return testing_cuda::name_of(std::get<0>(row.param));
                         });

TEST_P(AdamOnCuda, ClipsWithoutTheHostAndWithIt) {
  const auto options = FusedAdamOptions(0.01).max_grad_norm(0.5);
  const auto params = parameters();
  const auto others = make_parameters();
  FusedAdam ours(params, options);
  FusedAdam reference(others, options);
  for (int step = 0; step < 5; ++step) {
    set_gradients(others, step);
    copy_gradients(params, others);
    at::Tensor found = number(0);
    there([&] {
      if (step % 2 == 0) {
        step_checked(ours, found, number(0.5));
      } else {
        ours.step_unless(found, number(0.5));
      }
    });
    reference.step_unless({}, torch::full({1}, 0.5));
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

TEST_P(AdamOnCuda, ANormOfDoublesMayOverflowWhereTheyAreFinite) {
  at::Tensor param = torch::ones({4}, at::kDouble).to(device()).detach().requires_grad_(true);
  FusedAdam ours({param}, FusedAdamOptions(0.1).max_grad_norm(1));
  param.mutable_grad() = torch::full_like(param.detach(), 1e200);
  at::Tensor found = number(0);
  there([&] { step_checked(ours, found, number(1)); });
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_TRUE(param.isfinite().all().item<bool>());
  param.mutable_grad()[2] = INFINITY;
  there([&] { step_checked(ours, found, number(1)); });
  EXPECT_EQ(found.item<float>(), 1);
}

TEST_P(AdamOnCuda, WritesTheLowCopyInTheSamePass) {
  struct Lender final : StepContext {
    std::map<void*, at::Tensor> copies, gradients;
    LowCopy low_copy(const at::Tensor& parameter) override {
      void* const key = parameter.unsafeGetTensorImpl();
      return {&(gradients[key] = parameter.grad().to(at::kHalf)), &copies.at(key), std::nullopt};
    }
    void stepped(bool applied) override { EXPECT_TRUE(applied); }
  };
  const auto params = parameters();
  const auto others = make_parameters();
  FusedAdam ours(params, FusedAdamOptions(0.01));
  const auto lender = std::make_shared<Lender>();
  for (const at::Tensor& param : params) {
    lender->copies[param.unsafeGetTensorImpl()] = torch::empty_like(param.detach(), at::kBFloat16);
  }
  set_step_context(ours, lender);
  set_gradients(others, 0);
  copy_gradients(params, others);
  there([&] { ours.step_unless(number(0), number(1)); });
  for (const at::Tensor& param : params) {
    EXPECT_TRUE(torch::equal(lender->copies[param.unsafeGetTensorImpl()],
                             param.detach().to(at::kBFloat16)));
  }
}

TEST_P(AdamOnCuda, TakesParametersOfCpuAndDeviceTogether) {
  if (place() == Place::kEmulation) GTEST_SKIP() << "one device";
  auto params = parameters();
  const auto others = make_parameters();
  params[0] = params[0].detach().cpu().requires_grad_(true);
  FusedAdam ours(params, FusedAdamOptions(0.01).max_grad_norm(0.5));
  FusedAdam reference(others, FusedAdamOptions(0.01).max_grad_norm(0.5));
  for (int step = 0; step < 5; ++step) {
    set_gradients(others, step);
    copy_gradients(params, others);
    at::Tensor found = torch::zeros({1});
    step_checked(ours, found, torch::full({1}, 0.5));
    reference.step_unless({}, torch::full({1}, 0.5));
  }
  EXPECT_LT(distance(on_cpu(params), others), 2e-5);
}

}  // namespace
}  // namespace mezzo::optim
