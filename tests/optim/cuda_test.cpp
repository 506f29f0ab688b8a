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

  // What is saved counts the applied steps, and a CPU's optimizer goes on from it.
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
