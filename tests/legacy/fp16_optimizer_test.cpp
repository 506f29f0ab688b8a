#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/fp16_utils.h"
#include "mezzo/optim.h"

namespace mezzo::fp16_utils {
namespace {

using amp::inputs;
using amp::Line;
using amp::Listener;
using amp::targets;
using amp::TinyNet;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Quiet options with the scaling of O2.
FP16OptimizerOptions like_o2() {
  return {.dynamic_loss_scale = true,
          .dynamic_loss_args = DynamicLossArgs{65536, 2, 2000},
          .verbose = false};
}

template <typename Half>
at::Tensor half_loss(const Half& half, const at::Tensor& x = inputs()) {
  return torch::nn::functional::cross_entropy(half(x).to(at::kFloat), targets(x.size(0)));
}

/// A network whose weights half can hold.
TinyNet representable(int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  TinyNet net;
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters()) parameter.copy_(parameter.to(at::kHalf));
  return net;
}

std::unique_ptr<torch::optim::Optimizer> make(const std::string& name,
                                              const std::vector<at::Tensor>& parameters) {
  if (name == "adam") return std::make_unique<torch::optim::Adam>(parameters, 1e-2);
  if (name == "fused") {
    return std::make_unique<optim::FusedSGD>(parameters, optim::FusedSGDOptions(0.1).momentum(0.9));
  }
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

std::vector<at::Tensor> masters_of(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  std::vector<at::Tensor> masters;
  for (const auto& group : groups) {
    for (const at::Tensor& each : group.params()) masters.push_back(each.detach());
  }
  return masters;
}

at::Tensor batch(int step) {
  return inputs() * (1 + 0.25 * (step % 4)) + 0.125 * (step % 3);
}

TEST(Fp16Optimizer, GivesTheSameMastersAsO2BitForBitOver50StepsWithAnOverflow) {
  for (const std::string name : {"sgd", "adam", "fused"}) {
    for (const double scale : {0.0, 128.0}) {
      TinyNet first = representable(3);
      TinyNet second = representable(3);
      auto first_inner = make(name, first->parameters());
      amp::Options options{.opt_level = "O2", .verbosity = 0};
      if (scale != 0) options.loss_scale = scale;
      auto [model, optimizer] = amp::initialize(first, *first_inner, options);

      auto half = network_to_half(second);
      auto second_inner = make(name, half.parameters());
      FP16OptimizerOptions legacy = like_o2();
      if (scale != 0) legacy = {.static_loss_scale = scale, .verbose = false};
      FP16_Optimizer wrapped(*second_inner, legacy);

      for (int step = 0; step < 50; ++step) {
        const double factor = step == 20 ? kInf : 1;
        optimizer.zero_grad();
        amp::scale_loss(amp::loss_of(model, batch(step)) * factor, optimizer).backward();
        const bool skipped = optimizer.step().skipped();
        wrapped.zero_grad();
        wrapped.backward(half_loss(half, batch(step)) * factor);
        ASSERT_EQ(wrapped.overflow(), skipped) << name << " step " << step;
        ASSERT_TRUE(skipped || factor == 1) << name << " step " << step;
        wrapped.step();
        ASSERT_EQ(wrapped.loss_scale(), optimizer.loss_scale()) << name << " step " << step;
        ASSERT_TRUE(amp::same_values(masters_of(wrapped.param_groups()),
                                     masters_of(optimizer.param_groups())))
            << name << " step " << step;
      }
    }
  }
}

TEST(Fp16Optimizer, StepsFloatMastersAndGivesParametersAndStateBack) {
  Line net;
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), torch::optim::SGDOptions(0.125).momentum(0.5));
  const at::Tensor x = torch::tensor({{0.5F, -1.0F, 2.0F}});
  {
    FP16_Optimizer optimizer(sgd, {.static_loss_scale = 8, .verbose = false});
    EXPECT_EQ(optimizer.param_groups()[0].params()[0].scalar_type(), at::kFloat);
    EXPECT_EQ(optimizer.loss_scale(), 8);
    const at::Tensor before = masters_of(optimizer.param_groups())[0].clone();
    optimizer.backward(half(x).sum());
    optimizer.step();
    const at::Tensor master = masters_of(optimizer.param_groups())[0];
    EXPECT_TRUE(torch::equal(master, before - 0.125 * x));
    EXPECT_TRUE(torch::equal(net->line->weight, master.to(at::kHalf)));
  }
  EXPECT_TRUE(sgd.param_groups()[0].params()[0].is_same(net->line->weight));
  EXPECT_EQ(sgd.state().count(net->line->weight.unsafeGetTensorImpl()), 1U);
}

TEST(Fp16Optimizer, AStaticScaleIsCheckedUnlessItIsOne) {
  for (const double scale : {1.0, 8.0}) {
    Line net;
    auto half = network_to_half(net);
    torch::optim::SGD sgd(half.parameters(), 0.125);
    FP16_Optimizer optimizer(sgd, {.static_loss_scale = scale, .verbose = false});
    const at::Tensor x = torch::tensor({{0.5F, -1.0F, 2.0F}});
    optimizer.backward(half(x).sum() * kInf);
    EXPECT_EQ(optimizer.overflow(), scale != 1);
    optimizer.step();
    const at::Tensor master = masters_of(optimizer.param_groups())[0];
    EXPECT_EQ(master.isfinite().all().item<bool>(), scale != 1);
  }
}

TEST(Fp16Optimizer, SeveralLossesAddUpWhetherUpdatedTogetherOrOneByOne) {
  for (const bool together : {true, false}) {
    TinyNet net = representable(5);
    auto half = network_to_half(net);
    torch::optim::SGD sgd(half.parameters(), 0.1);
    FP16_Optimizer optimizer(sgd, {.static_loss_scale = 64, .verbose = false});
    const at::Tensor loss = half_loss(half);
    optimizer.backward(loss, /*update_master_grads=*/true, /*retain_graph=*/true);
    const auto once = *optimizer.inspect_master_grad_data();
    std::vector<at::Tensor> expected;
    for (const at::Tensor& grad : once[0]) expected.push_back(grad.clone() * 3);
    optimizer.zero_grad();
    optimizer.backward(loss, !together, true);
    optimizer.backward(loss, !together, true);
    optimizer.backward(loss, true);
    const auto sum = *optimizer.inspect_master_grad_data();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(sum[0][i], expected[i], 2e-3, 1e-4)) << i;
    }
    optimizer.step();
  }
}

TEST(Fp16Optimizer, UpdatesFromABackwardPassOfTheCallersOwn) {
  TinyNet net = representable(7);
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.1);
  FP16_Optimizer optimizer(sgd, {.static_loss_scale = 64, .verbose = false});
  const at::Tensor loss = half_loss(half);
  optimizer.backward(loss, true, true);
  const auto ours = *optimizer.inspect_master_grad_data();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& grad : ours[0]) expected.push_back(grad.clone());
  optimizer.zero_grad(/*set_to_none=*/true);
  (loss * optimizer.loss_scale()).backward();
  optimizer.update_master_grads();
  const auto own = *optimizer.inspect_master_grad_data();
  EXPECT_TRUE(amp::same_values(own[0], expected));
  optimizer.update_master_grads();  // nothing new
  EXPECT_TRUE(amp::same_values((*optimizer.inspect_master_grad_data())[0], expected));
  optimizer.step();
}

TEST(Fp16Optimizer, AnOverflowLowersTheScaleAtOnceAndTheStepMovesNothing) {
  TinyNet net = representable(9);
  auto half = network_to_half(net);
  torch::optim::Adam adam(half.parameters(), 1e-2);
  FP16_Optimizer optimizer(adam, like_o2());
  optimizer.backward(half_loss(half));
  optimizer.step();
  const auto before = amp::values_of(*net);
  const auto masters = masters_of(optimizer.param_groups());
  std::vector<at::Tensor> copies;
  for (const at::Tensor& master : masters) copies.push_back(master.clone());
  optimizer.zero_grad();
  net->norm->eval();
  optimizer.backward(half_loss(half) * kInf);
  EXPECT_TRUE(optimizer.overflow());
  EXPECT_EQ(optimizer.loss_scale(), 32768);
  EXPECT_EQ(optimizer.clip_master_grads(1.0), -1);
  EXPECT_FALSE(optimizer.inspect_master_grad_data().has_value());
  optimizer.step();
  EXPECT_TRUE(amp::same_values(masters_of(optimizer.param_groups()), copies));
  EXPECT_TRUE(amp::same_values(amp::values_of(*net), before));
  const auto& state = static_cast<torch::optim::AdamParamState&>(*adam.state().begin()->second);
  EXPECT_EQ(state.step(), 1);
  optimizer.zero_grad();
  EXPECT_FALSE(optimizer.overflow());
}

TEST(Fp16Optimizer, ClipsTheMastersGradients) {
  TinyNet net = representable(11);
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.1);
  FP16_Optimizer optimizer(sgd, {.static_loss_scale = 64, .verbose = false});
  optimizer.backward(half_loss(half) * 10);
  const auto norm_of = [&optimizer] {
    double squares = 0;
    const auto groups = optimizer.inspect_master_grad_data();
    for (const auto& group : *groups) {
      for (const at::Tensor& grad : group)
        squares += grad.to(at::kDouble).square().sum().item<double>();
    }
    return std::sqrt(squares);
  };
  const double before = norm_of();
  EXPECT_NEAR(optimizer.clip_master_grads(0.5), before, 1e-5 * before);
  EXPECT_NEAR(norm_of(), 0.5, 1e-5);
  EXPECT_NEAR(optimizer.clip_master_grads(1000), 0.5, 1e-5);
}

TEST(Fp16Optimizer, TheDynamicScaleHasApexDefaultsAndAFloorOfOne) {
  Line net;
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.1);
  FP16_Optimizer optimizer(sgd, {.dynamic_loss_scale = true, .verbose = false});
  EXPECT_EQ(optimizer.loss_scale(), 4294967296.0);
  optimizer.set_loss_scale(2);
  const at::Tensor x = torch::ones({1, 3});
  int steps = 0;
  try {
    for (; steps < 100; ++steps) {
      optimizer.backward(half(x).sum() * kInf);
      optimizer.step();
      EXPECT_EQ(optimizer.loss_scale(), 1);
    }
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("shape [1, 3]"));
  }
  EXPECT_EQ(steps, 50);
  const DynamicLossArgs args{.init_scale = 4, .scale_factor = 4, .scale_window = 3};
  torch::optim::SGD other(half.parameters(), 1e-4);
  FP16_Optimizer grows(other, {.dynamic_loss_args = args, .verbose = false});
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(grows.loss_scale(), 4);
    grows.zero_grad();
    grows.backward(half(x).sum());
    grows.step();
  }
  EXPECT_EQ(grows.loss_scale(), 16);
}

TEST(Fp16Optimizer, AClosureThatOverflowsIsRepeatedAtALowerScale) {
  Line net;
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.125);
  FP16_Optimizer optimizer(sgd, like_o2());
  const at::Tensor x = torch::tensor({{0.5F, -1.0F, 2.0F}});
  const at::Tensor before = masters_of(optimizer.param_groups())[0].clone();
  int calls = 0;
  const at::Tensor result = optimizer.step([&] {
    optimizer.zero_grad();
    const at::Tensor loss = half(x).sum().to(at::kFloat);
    optimizer.backward(loss * (++calls < 3 ? kInf : 1));
    return loss;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(optimizer.loss_scale(), 16384);
  EXPECT_EQ(result.item<double>(), 1.5);
  EXPECT_TRUE(torch::equal(masters_of(optimizer.param_groups())[0], before - 0.125 * x));
}

TEST(Fp16Optimizer, LbfgsConvergesThroughMasters) {
  Line net;
  auto half = network_to_half(net);
  torch::optim::LBFGS lbfgs(half.parameters(), torch::optim::LBFGSOptions(0.5).max_iter(10));
  FP16_Optimizer optimizer(lbfgs,
                           {.dynamic_loss_args = DynamicLossArgs{128, 2, 2000}, .verbose = false});
  const at::Tensor x = torch::eye(3);
  const at::Tensor wanted = torch::tensor({{0.5F}, {0.25F}, {-1.0F}});
  at::Tensor loss;
  for (int step = 0; step < 4; ++step) {
    loss = optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor error = (half(x).to(at::kFloat) - wanted).square().sum();
      optimizer.backward(error);
      return error;
    });
  }
  EXPECT_LT(loss.item<double>(), 1e-3);
}

TEST(Fp16Optimizer, ResumesBitForBitInAnyOrderOfLoading) {
  for (const bool network_first : {true, false}) {
    const auto train = [](const auto& half, FP16_Optimizer& optimizer, int from, int to) {
      for (int step = from; step < to; ++step) {
        optimizer.zero_grad();
        optimizer.backward(half_loss(half, batch(step)) * (step == 3 ? kInf : 1));
        optimizer.step();
      }
    };
    TinyNet net = representable(13);
    auto half = network_to_half(net);
    torch::optim::Adam adam(half.parameters(), 1e-2);
    FP16_Optimizer optimizer(adam, like_o2());
    train(half, optimizer, 0, 6);
    std::stringstream network_file;
    std::stringstream optimizer_file;
    torch::save(half, network_file);
    torch::save(optimizer, optimizer_file);
    train(half, optimizer, 6, 10);

    TinyNet other = representable(14);
    auto other_half = network_to_half(other);
    torch::optim::Adam other_adam(other_half.parameters(), 1e-2);
    FP16_Optimizer resumed(other_adam, like_o2());
    train(other_half, resumed, 0, 2);  // loading after the first steps is the same
    if (network_first) torch::load(other_half, network_file);
    torch::load(resumed, optimizer_file);
    if (!network_first) torch::load(other_half, network_file);
    EXPECT_EQ(resumed.loss_scale(), 32768);
    train(other_half, resumed, 6, 10);
    EXPECT_TRUE(
        amp::same_values(masters_of(resumed.param_groups()), masters_of(optimizer.param_groups())))
        << network_first;
    EXPECT_TRUE(amp::same_values(amp::values_of(*other), amp::values_of(*net))) << network_first;
  }
}

TEST(Fp16Optimizer, LoadingSomethingElseIsAnErrorThatLeavesMastersAlone) {
  TinyNet net;
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.1);
  FP16_Optimizer optimizer(sgd, like_o2());
  const at::Tensor before = masters_of(optimizer.param_groups())[0].clone();
  const auto message_of = [&](const auto& what) -> std::string {
    std::stringstream file;
    torch::save(what, file);
    try {
      torch::load(optimizer, file);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of(net), HasSubstr("is not of an FP16_Optimizer"));
  {
    TinyNet other;
    torch::optim::SGD other_sgd(network_to_half(other).parameters(), 0.1);
    const FP16_Optimizer fixed(other_sgd, {.static_loss_scale = 8, .verbose = false});
    EXPECT_THAT(message_of(fixed), HasSubstr("static scale, this one's is dynamic"));
  }
  {
    Line other;
    torch::optim::SGD other_sgd(network_to_half(other).parameters(), 0.1);
    const FP16_Optimizer smaller(other_sgd, like_o2());
    EXPECT_THAT(message_of(smaller), HasSubstr("the archive has 1 masters, this optimizer 4"));
  }
  EXPECT_TRUE(torch::equal(masters_of(optimizer.param_groups())[0], before));
  EXPECT_EQ(optimizer.loss_scale(), 65536);
}

TEST(Fp16Optimizer, SavedBetweenAnOverflowAndItsStepItSkipsAndGoesOn) {
  for (const bool dynamic : {true, false}) {
    const FP16OptimizerOptions options =
        dynamic ? like_o2() : FP16OptimizerOptions{.static_loss_scale = 128, .verbose = false};
    TinyNet net = representable(15);
    auto half = network_to_half(net);
    torch::optim::Adam adam(half.parameters(), 1e-2);
    FP16_Optimizer optimizer(adam, options);
    optimizer.backward(half_loss(half) * kInf);
    std::stringstream file;
    torch::save(optimizer, file);
    optimizer.step();

    TinyNet other = representable(16);
    auto other_half = network_to_half(other);
    torch::optim::Adam other_adam(other_half.parameters(), 1e-2);
    FP16_Optimizer resumed(other_adam, options);
    torch::load(resumed, file);
    EXPECT_TRUE(resumed.overflow());
    resumed.step();
    EXPECT_TRUE(other_adam.state().empty()) << "nothing moved";
    EXPECT_EQ(resumed.loss_scale(), dynamic ? 32768 : 128);
    for (FP16_Optimizer* each : {&optimizer, &resumed}) {
      each->zero_grad();
      EXPECT_FALSE(each->overflow());
    }
    optimizer.backward(half_loss(half));
    optimizer.step();
    net->norm->eval();
    other->norm->eval();
    resumed.backward(half_loss(other_half));
    resumed.step();
    EXPECT_FALSE(other_adam.state().empty());
  }
}

TEST(Fp16Optimizer, AFileOfAnotherInnerOptimizerIsAnErrorThatChangesNothing) {
  const auto train = [](const auto& half, FP16_Optimizer& optimizer) {
    optimizer.zero_grad();
    optimizer.backward(half_loss(half));
    optimizer.step();
  };
  for (const bool trained : {false, true}) {
    for (const std::string name : {"adam", "sgd", "fused", "two groups"}) {
      TinyNet net = representable(17);
      auto half = network_to_half(net);
      const auto inner = make(name == "adam" ? "sgd" : "adam", half.parameters());
      FP16_Optimizer optimizer(*inner, like_o2());
      train(half, optimizer);
      std::vector<at::Tensor> before;
      for (const at::Tensor& each : masters_of(optimizer.param_groups()))
        before.push_back(each.clone());

      TinyNet other = representable(18);
      auto other_half = network_to_half(other);
      auto other_inner = make(name, other_half.parameters());
      if (name == "two groups") {
        const auto all = other_half.parameters();
        other_inner = make("adam", {all[0], all[1]});
        other_inner->add_param_group(
            torch::optim::OptimizerParamGroup({all.begin() + 2, all.end()}));
      }
      std::stringstream file;
      {
        FP16_Optimizer saved(*other_inner, like_o2());
        if (trained) train(other_half, saved);
        torch::save(saved, file);
      }
      try {
        torch::load(optimizer, file);
        ADD_FAILURE() << name;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("expected"));
        EXPECT_THAT(error.what(), testing::Not(HasSubstr("report a bug"))) << name;
        EXPECT_THAT(error.what(), HasSubstr(name == "two groups" ? "2 parameter groups (2, 4)"
                                            : name == "adam"     ? "betas"
                                                                 : "momentum"));
      }
      EXPECT_TRUE(amp::same_values(masters_of(optimizer.param_groups()), before)) << name;
      EXPECT_EQ(inner->state().size(), before.size()) << name;
      train(half, optimizer);
    }
  }
}

TEST(Fp16Optimizer, RefusesAScaleToBeginWithThatItsRulesCannotKeep) {
  TinyNet net;
  torch::optim::SGD sgd(network_to_half(net).parameters(), 0.1);
  const auto message_of = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  for (const double scale : {0.25, 3e38}) {
    const DynamicLossArgs args{.init_scale = scale};
    EXPECT_THAT(message_of([&] {
                  FP16_Optimizer refused(sgd, {.dynamic_loss_args = args, .verbose = false});
                }),
                HasSubstr("expected 1 to 1.70141e+38"));
    EXPECT_THAT(message_of([&] { DynamicLossScaler refused(scale); }),
                HasSubstr("expected 1 to 1.70141e+38"));
  }
  for (const double scale : {1.0, 0x1p127}) {
    const DynamicLossArgs args{.init_scale = scale};
    const FP16_Optimizer optimizer(sgd, {.dynamic_loss_args = args, .verbose = false});
    EXPECT_EQ(optimizer.loss_scale(), scale);
    EXPECT_EQ(DynamicLossScaler(scale).loss_scale(), scale);
  }
  const FP16_Optimizer fixed(sgd, {.static_loss_scale = 0.25, .verbose = false});
  EXPECT_EQ(fixed.loss_scale(), 0.25) << "a static scale may be below 1";
}

TEST(Fp16Optimizer, MisuseIsNamed) {
  TinyNet net;
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.1);
  FP16_Optimizer optimizer(sgd, like_o2());
  const auto message_of = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("call backward(loss) before step"));
  optimizer.backward(half_loss(half), false);
  EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("call update_master_grads()"));
  optimizer.update_master_grads();
  half_loss(half).backward();
  EXPECT_THAT(message_of([&] { optimizer.update_master_grads(); }), HasSubstr("zero_grad()"));
  EXPECT_THAT(message_of([&] { FP16_Optimizer again(sgd, like_o2()); }),
              HasSubstr("initialized already"));
  torch::optim::SGD other(network_to_half(TinyNet()).parameters(), 0.1);
  EXPECT_THROW(FP16_Optimizer(other, {.static_loss_scale = 0}), ConfigError);
  EXPECT_THROW(FP16_Optimizer(other, {.dynamic_loss_args = DynamicLossArgs{1, 1, 10}}),
               ConfigError);
  EXPECT_THROW(FP16_Optimizer(other, {.dynamic_loss_args = DynamicLossArgs{1, 2, 0}}), ConfigError);
  EXPECT_THROW(optimizer.set_loss_scale(-1), ConfigError);
}

TEST(Fp16Optimizer, TellsWhatItStepsIfVerbose) {
  TinyNet net;
  auto half = network_to_half(net);
  torch::optim::SGD sgd(half.parameters(), 0.1);
  const Listener listener;
  FP16_Optimizer optimizer(sgd, {.dynamic_loss_args = DynamicLossArgs{1024, 2, 2000}});
  EXPECT_THAT(listener.heard, HasSubstr("Half [8, 4] by a float master"));
  EXPECT_THAT(listener.heard, HasSubstr("Float [8]"));
  optimizer.backward(half_loss(half) * kInf);
  optimizer.step();
  EXPECT_THAT(listener.heard, HasSubstr("step skipped"));
  EXPECT_THAT(listener.heard, HasSubstr("1024 -> 512"));
}

}  // namespace
}  // namespace mezzo::fp16_utils
