// The common behaviour of all fused optimizers: skipping, checking, layouts, versions, errors.
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>

#include "bridge/device.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/optimizer_kinds.h"
#include "optim/step_access.h"
#include "optim/step_context.h"
#include "optim/step_work.h"
#include "optim/trajectory.h"

namespace {
std::atomic<std::int64_t> allocations{0};
}

// Replaced for the whole program, LibTorch's own calls included.
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace mezzo::optim {
namespace {

using namespace testing_support;

// LibTorch's allocator of tensor memory, counted while it lives.
class CountedTensors final : public c10::Allocator {
 public:
  CountedTensors() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 255); }
  ~CountedTensors() override { c10::SetCPUAllocator(inner_, 255); }
  c10::DataPtr allocate(std::size_t bytes) override {
    ++allocations;
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* inner_;
};

class FusedStep : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Optim, FusedStep, testing::ValuesIn(kinds()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(FusedStep, MovesNothingWhenTheFlagIsSetNotEvenTheCount) {
  const auto params = make_parameters();
  const auto others = make_parameters();
  const auto skipping = GetParam().make(params);
  const auto straight = GetParam().make(others);
  for (int step = 0; step < 6; ++step) {
    set_gradients(params, step);
    const auto before = values(params);
    for (const at::Tensor& flag :
         {torch::ones({1}), torch::ones({}, at::kInt), torch::full({}, 3.0)}) {
      skipping->step_unless(flag);
      EXPECT_TRUE(identical(params, before));
    }
    skipping->step_unless(torch::zeros({1}));
    set_gradients(others, step);
    straight->step();
  }
  EXPECT_TRUE(identical(params, others));
}

TEST_P(FusedStep, ASkippedFirstStepLeavesNoState) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  set_gradients(params, 0);
  optimizer->step_unless(torch::ones({1}));
  EXPECT_TRUE(optimizer->state().empty());
}

TEST_P(FusedStep, MultipliesByTheInverseScale) {
  const auto params = make_parameters();
  const auto others = make_parameters();
  const auto scaled = GetParam().make(params);
  const auto straight = GetParam().make(others);
  for (int step = 0; step < 5; ++step) {
    set_gradients(params, step);
    for (const at::Tensor& param : params) param.mutable_grad().mul_(1024);
    scaled->step_unless({}, torch::full({1}, 1.0 / 1024));
    set_gradients(others, step);
    straight->step();
  }
  EXPECT_TRUE(identical(params, others));
}

TEST_P(FusedStep, OneBadElementOfAnyGradientStopsTheWholeStep) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].numel() == 0) continue;
    for (const double bad : {double(INFINITY), -double(INFINITY), std::nan("")}) {
      set_gradients(params, 1);
      at::Tensor last = params[i].grad();
      while (last.dim() > 0) last = last.select(0, -1);
      last.fill_(bad);
      const auto before = values(params);
      at::Tensor found = torch::zeros({1});
      step_checked(*optimizer, found, torch::ones({1}));
      EXPECT_EQ(found.item<float>(), 1);
      EXPECT_TRUE(identical(params, before));
    }
  }
  set_gradients(params, 1);
  const auto before = values(params);
  at::Tensor found = torch::zeros({1});
  step_checked(*optimizer, found, torch::ones({1}));
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_FALSE(identical(params, before));
}

TEST_P(FusedStep, OthersMayVetoACheckedStep) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  set_gradients(params, 1);
  const auto before = values(params);
  at::Tensor found = torch::zeros({1});
  step_checked(*optimizer, found, {}, [](at::Tensor& flag) { flag.fill_(1); });
  EXPECT_TRUE(identical(params, before));
}

TEST_P(FusedStep, TakesGradientsOfAnotherLayoutOrView) {
  const auto params = make_parameters();
  const auto others = make_parameters();
  const auto ours = GetParam().make(params);
  const auto same = GetParam().make(others);
  for (int step = 0; step < 3; ++step) {
    set_gradients(params, step);
    set_gradients(others, step);
    params[4].mutable_grad() = params[4].grad().contiguous();
    params[0].mutable_grad() = params[0].grad().t().contiguous().t();
    params[1].mutable_grad() = torch::stack({params[1].grad(), params[1].grad()}, 1).select(1, 0);
    ours->step();
    same->step();
  }
  EXPECT_TRUE(identical(params, others));
}

TEST_P(FusedStep, BumpsTheVersionsOfWeightsAndDoesNotTouchGradients) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  set_gradients(params, 0);
  std::vector<at::Tensor> grads;
  std::vector<std::int64_t> versions;
  for (const at::Tensor& param : params) {
    grads.push_back(param.grad().clone());
    versions.push_back(param._version());
  }
  optimizer->step();
  for (std::size_t i = 0; i < params.size(); ++i) {
    EXPECT_GT(params[i]._version(), versions[i]);
    EXPECT_TRUE(torch::equal(params[i].grad(), grads[i]));
  }
}

TEST_P(FusedStep, CallsTheClosureWithGradients) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  torch::NoGradGuard no_grad;
  const at::Tensor loss = optimizer->step([&] {
    optimizer->zero_grad();
    at::Tensor sum = (params[0] * params[0]).sum();
    sum.backward();
    return sum;
  });
  EXPECT_TRUE(loss.requires_grad());
  EXPECT_TRUE(params[0].grad().defined());
}

TEST_P(FusedStep, GivesTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    const auto params = make_parameters();
    const auto optimizer = GetParam().make(params);
    for (int step = 0; step < 3; ++step) {
      set_gradients(params, step);
      optimizer->step();
    }
    results.push_back(params);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(identical(results[0], results[1]));
}

TEST_P(FusedStep, AllocatesNothingOnceItIsSteady) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  set_gradients(params, 0);
  at::Tensor found = torch::zeros({1});
  const at::Tensor inv_scale = torch::ones({1});
  for (int step = 0; step < 3; ++step) {
    optimizer->step_unless(found, inv_scale);
    step_checked(*optimizer, found, inv_scale);
  }
  const CountedTensors counted;
  const std::int64_t before = allocations;
  optimizer->step_unless(found, inv_scale);
  EXPECT_EQ(allocations - before, 0) << "unchecked";
  step_checked(*optimizer, found, inv_scale);
  EXPECT_EQ(allocations - before, 0) << "checked";
}

TEST_P(FusedStep, NoParametersAndNoGradientsAreFine) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  const auto before = values(params);
  optimizer->step();
  EXPECT_TRUE(identical(params, before));
  GetParam().make({})->step();
}

/// While it lives, LibTorch's operators do the work on CPUs.
struct WithoutKernels {
  WithoutKernels() { bridge::choose_kernels(at::kCPU, nullptr); }
  ~WithoutKernels() { bridge::choose_usual_kernels(at::kCPU); }
  WithoutKernels(const WithoutKernels&) = delete;
  WithoutKernels& operator=(const WithoutKernels&) = delete;
};

TEST_P(FusedStep, GoesTheSameWayByOperatorsOnDevicesWithoutKernels) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kDouble}) {
    const auto params = make_parameters(type);
    const auto others = make_parameters(type);
    const auto fused = GetParam().make(params);
    const auto operators = GetParam().make(others);
    for (int step = 0; step < 10; ++step) {
      set_gradients(params, step);
      for (std::size_t i = 0; i < params.size(); ++i) {
        others[i].mutable_grad() = params[i].grad().clone();
      }
      at::Tensor found = torch::zeros({1});
      fused->step_unless(found, torch::full({1}, 0.5));
      const WithoutKernels by_operators;
      step_checked(*operators, found, torch::full({1}, 0.5));
    }
    EXPECT_LT(distance(others, params), type == at::kDouble ? 1e-12
                                        : type == at::kHalf ? 2e-3
                                                            : 1e-5);
    const auto before = values(others);
    others[1].mutable_grad()[0] = NAN;
    at::Tensor found = torch::zeros({1});
    const WithoutKernels by_operators;
    step_checked(*operators, found, {});
    EXPECT_EQ(found.item<float>(), 1);
    EXPECT_TRUE(identical(others, before));
  }
}

struct BadInput {
  const char* name;
  std::function<std::vector<at::Tensor>()> params;
  const char* message;
};

at::Tensor with_gradient(at::Tensor param, const at::Tensor& grad) {
  param.requires_grad_(true);
  param.mutable_grad() = grad;
  return param;
}

TEST_P(FusedStep, BadInputIsAnErrorThatNamesTheParameterAndChangesNothing) {
  const at::Tensor memory = torch::zeros({10});
  const std::vector<BadInput> cases{
      {"sparse gradient",
       [] {
         return std::vector{with_gradient(torch::ones({3, 3}), torch::eye(3).to_sparse())};
       },
       "the gradient of parameter 1 of group 0"},
      {"complex weight",
       [] {
         return std::vector{with_gradient(torch::ones({3}, at::kComplexFloat),
                                          torch::ones({3}, at::kComplexFloat))};
       },
       "has type ComplexFloat; expected Float, Half, BFloat16 or Double"},
      {"overlapping weights",
       [=] {
         return std::vector{with_gradient(memory.narrow(0, 0, 5).detach(), torch::ones({5})),
                            with_gradient(memory.narrow(0, 4, 5).detach(), torch::ones({5}))};
       },
       "share memory"},
      {"listed twice",
       [] {
         const at::Tensor param = with_gradient(torch::ones({3}), torch::ones({3}));
         return std::vector{param, param};
       },
       "listed twice"},
      {"a gradient in another weight's memory",
       [=] {
         return std::vector{with_gradient(torch::ones({4}), memory.narrow(0, 2, 4).detach()),
                            with_gradient(memory.narrow(0, 0, 3).detach(), torch::ones({3}))};
       },
       "the gradient of parameter 1 of group 0"},
      {"a gradient that begins inside its weight",
       [] {
         const at::Tensor shared = torch::zeros({6});
         return std::vector{
             with_gradient(shared.narrow(0, 0, 4).detach(), shared.narrow(0, 2, 4).detach())};
       },
       "shares memory"},
      {"an integer weight",
       [] {
         at::Tensor param = torch::ones({3}, at::kInt);
         param.mutable_grad() = torch::ones({3}, at::kInt);
         return std::vector{param};
       },
       "has type Int; expected Float, Half, BFloat16 or Double"},
      {"a weight with holes",
       [=] {
         return std::vector{with_gradient(memory.slice(0, 0, 10, 2).detach(), torch::ones({5}))};
       },
       "with holes or overlaps"}};
  for (const BadInput& row : cases) {
    const at::Tensor good = with_gradient(torch::ones({2}), torch::ones({2}));
    std::vector<at::Tensor> params{good};
    for (const at::Tensor& param : row.params()) params.push_back(param);
    const auto optimizer = GetParam().make(params);
    try {
      optimizer->step();
      ADD_FAILURE() << row.name << ": no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(row.message)) << row.name;
      EXPECT_THAT(error.what(), testing::HasSubstr("parameter 1 of group 0")) << row.name;
    }
    EXPECT_TRUE(torch::equal(good.detach(), torch::ones({2}))) << row.name;
    EXPECT_TRUE(optimizer->state().empty()) << row.name;
  }
}

TEST_P(FusedStep, TakesGradientsOfEveryTypeForWeightsOfEveryType) {
  const at::ScalarType types[] = {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble};
  for (const at::ScalarType of_weights : types) {
    for (const at::ScalarType of_gradients : types) {
      const auto params = make_parameters(of_weights);
      const auto others = make_parameters(of_weights);
      const auto ours = GetParam().make(params);
      const auto same = GetParam().make(others);
      const at::ScalarType wide = of_weights == at::kDouble ? at::kDouble : at::kFloat;
      for (int step = 0; step < 3; ++step) {
        set_gradients(params, step);
        for (std::size_t i = 0; i < params.size(); ++i) {
          const at::Tensor grad = params[i].grad().to(of_gradients);
          params[i].mutable_grad() = grad;
          others[i].mutable_grad() = grad.to(wide);
        }
        ours->step();
        same->step();
      }
      // Norms of double are sums of double, in an order that the gradients' type decides.
      EXPECT_TRUE(wide == at::kDouble ? distance(params, others) < 1e-12
                                      : identical(params, others))
          << of_weights << ' ' << of_gradients;
    }
  }
}

TEST_P(FusedStep, GroupsMayJoinWhileTraining) {
  const auto params = make_parameters();
  const auto others = make_parameters();
  const auto joined = GetParam().make({params[0], params[4]});
  const auto first = GetParam().make({others[0], others[4]});
  const auto second = GetParam().make({others[5]});
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      joined->add_param_group(torch::optim::OptimizerParamGroup(
          {params[5]}, second->param_groups()[0].options().clone()));
      second->param_groups()[0].options().set_lr(0.1);
      joined->param_groups()[1].options().set_lr(0.1);
    }
    set_gradients(params, step);
    // Each group's gradients are short enough to be left alone where the norm of all is bounded.
    for (std::size_t i = 0; i < params.size(); ++i) {
      params[i].mutable_grad().mul_(1e-4);
      others[i].mutable_grad() = params[i].grad().clone();
    }
    joined->step();
    first->step();
    if (step >= 3) second->step();
  }
  EXPECT_TRUE(identical(params, others));
}

TEST_P(FusedStep, AGroupWithTheOptionsOfAnotherOptimizerIsNotAdded) {
  const auto optimizer = GetParam().make(make_parameters());
  const torch::optim::OptimizerParamGroup group(make_parameters(),
                                                std::make_unique<torch::optim::LBFGSOptions>(0.1));
  EXPECT_THROW(optimizer->add_param_group(group), ConfigError);
  EXPECT_EQ(optimizer->param_groups().size(), 1);
}

TEST(FusedStepGroups, OptionsOutOfRangeAreNotAdded) {
  const auto params = make_parameters();
  FusedAdam adam(params, FusedAdamOptions(0.1));
  const torch::optim::OptimizerParamGroup group(
      make_parameters(), std::make_unique<FusedAdamOptions>(FusedAdamOptions(0.1).eps(-1)));
  EXPECT_THROW(adam.add_param_group(group), ConfigError);
  EXPECT_EQ(adam.param_groups().size(), 1);
  set_gradients(params, 0);
  adam.step();
}

TEST(FusedStepMove, TakesStatesAndCountersAlong) {
  const auto params = make_parameters();
  const auto others = make_parameters();
  FusedAdam reference(others, FusedAdamOptions(0.01));
  std::vector<FusedAdam> several;
  several.emplace_back(params, FusedAdamOptions(0.01));
  const auto both_step = [&](int step) {
    set_gradients(params, step);
    set_gradients(others, step);
    several[0].step();
    reference.step();
  };
  both_step(0);
  several.emplace_back(make_parameters(), FusedAdamOptions(0.1));  // the first moves
  both_step(1);
  struct Trainer {
    FusedAdam adam;
  };
  Trainer trainer{std::move(several[0])};
  several[0] = std::move(trainer.adam);
  both_step(2);
  EXPECT_TRUE(identical(params, others));
}

TEST_P(FusedStep, SchedulersSetTheLearningRate) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  torch::optim::SGD reference(params, torch::optim::SGDOptions(0.01));
  torch::optim::StepLR schedule(*optimizer, 2, 0.1);
  torch::optim::StepLR expected(reference, 2, 0.1);
  const auto rate_of = [](torch::optim::Optimizer& of) {
    return of.param_groups()[0].options().get_lr();
  };
  for (int step = 0; step < 6; ++step) {
    set_gradients(params, step);
    optimizer->step();
    schedule.step();
    expected.step();
    EXPECT_DOUBLE_EQ(rate_of(*optimizer), rate_of(reference)) << step;
  }
  const auto before = values(params);
  set_gradients(params, 6);
  optimizer->param_groups()[0].options().set_lr(0);
  optimizer->step();
  EXPECT_TRUE(identical(params, before));
}

TEST_P(FusedStep, ThatFailsLeavesNoStateOfTheOthersBehind) {
  const at::Tensor a = torch::ones({3}).requires_grad_(true);
  at::Tensor b = torch::ones({4}).requires_grad_(true);
  const auto optimizer = GetParam().make({a, b});
  b.mutable_grad() = torch::ones({4});
  optimizer->step();
  b.set_data(torch::ones({5}));
  b.mutable_grad() = torch::ones({5});
  a.mutable_grad() = torch::ones({3});
  EXPECT_THROW(optimizer->step(), ConfigError);
  EXPECT_EQ(optimizer->state().count(a.unsafeGetTensorImpl()), 0);
  EXPECT_TRUE((a == 1).all().item<bool>());
  EXPECT_TRUE((b == 1).all().item<bool>());
}

TEST(FusedStepMemory, OfAWeightThatGrewIntoItsNeighbourIsFound) {
  const at::Tensor memory = torch::zeros({10});
  at::Tensor a = memory.narrow(0, 0, 4).detach().requires_grad_(true);
  const at::Tensor b = memory.narrow(0, 4, 4).detach().requires_grad_(true);
  FusedSGD sgd({a, b}, FusedSGDOptions(0.1));
  a.mutable_grad() = torch::ones({4});
  b.mutable_grad() = torch::ones({4});
  sgd.step();
  a.set_data(memory.narrow(0, 0, 6));
  a.mutable_grad() = torch::ones({6});
  EXPECT_THROW(sgd.step(), ConfigError);
}

TEST(FusedStepNorm, OfDoublesMayOverflowWhereTheyAreFinite) {
  const at::Tensor param = torch::ones({4}, at::kDouble).requires_grad_(true);
  FusedAdam adam({param}, FusedAdamOptions(0.1).max_grad_norm(1));
  param.mutable_grad() = torch::full({4}, 1e200, at::kDouble);
  at::Tensor found = torch::zeros({1});
  step_checked(adam, found, {});
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_TRUE(param.isfinite().all().item<bool>());
  param.mutable_grad()[2] = INFINITY;
  step_checked(adam, found, {});
  EXPECT_EQ(found.item<float>(), 1);
}

TEST_P(FusedStep, TakesAGradientThatIsTheWeightItself) {
  const at::Tensor param = torch::full({40}, 0.5).requires_grad_(true);
  param.mutable_grad() = param.detach();
  const at::Tensor other = torch::full({40}, 0.5).requires_grad_(true);
  other.mutable_grad() = torch::full({40}, 0.5);
  GetParam().make({param})->step();
  GetParam().make({other})->step();
  EXPECT_TRUE(torch::equal(param.detach(), other.detach()));
}

TEST_P(FusedStep, AFlagOfTwoElementsIsAnError) {
  const auto params = make_parameters();
  const auto optimizer = GetParam().make(params);
  set_gradients(params, 0);
  EXPECT_THROW(optimizer->step_unless(torch::zeros({2})), ConfigError);
  EXPECT_THROW(optimizer->step_unless({}, torch::zeros({2})), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
