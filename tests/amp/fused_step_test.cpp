#include "amp/training.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind, TinyNet& net) {
  if (kind == "FusedSGD") {
    return std::make_unique<optim::FusedSGD>(net->parameters(),
                                             optim::FusedSGDOptions(0.05).momentum(0.9));
  }
  if (kind == "FusedNovoGrad") return std::make_unique<optim::FusedNovoGrad>(net->parameters());
  if (kind == "FusedAdagrad") return std::make_unique<optim::FusedAdagrad>(net->parameters());
  if (kind == "FusedLAMB") return std::make_unique<optim::FusedLAMB>(net->parameters());
  return std::make_unique<optim::FusedAdam>(net->parameters(), optim::FusedAdamOptions(0.01));
}

struct FusedCase {
  std::string level, optimizer;
  ComputeMode mode;
  bool deferred;
};

std::vector<FusedCase> fused_cases() {
  std::vector<FusedCase> cases;
  for (const char* level : {"O1", "O4"}) {
    for (const char* optimizer :
         {"FusedAdam", "FusedSGD", "FusedLAMB", "FusedNovoGrad", "FusedAdagrad"}) {
      for (const ComputeMode mode : {ComputeMode::kNative, ComputeMode::kEmulated}) {
        for (const bool deferred : {false, true})
          cases.push_back({level, optimizer, mode, deferred});
      }
    }
  }
  return cases;
}

struct WeightCasts : testing::TestWithParam<FusedCase> {
  WeightCasts() { set_mode(GetParam().mode); }
  ~WeightCasts() override { set_mode(ComputeMode::kAuto); }
  static void set_mode(ComputeMode mode) {
    set_compute_mode(at::kHalf, mode);
    set_compute_mode(at::kBFloat16, mode);
  }
  static Options options() {
    Options options = at_level(GetParam().level);
    options.loss_scale = "dynamic";
    options.defer_unscale = GetParam().deferred;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Amp, WeightCasts, testing::ValuesIn(fused_cases()), [](const auto& row) {
  const FusedCase& c = row.param;
  return c.level + c.optimizer + (c.mode == ComputeMode::kNative ? "Native" : "Emulated") +
         (c.deferred ? "Deferred" : "");
});

TEST_P(WeightCasts, AreNoneOnceTheStepWritesTheCopies) {
  // Two networks alike; the second one's weights are cast again in every iteration.
  const auto train = [&](bool recast, std::int64_t& casts) {
    torch::manual_seed(1);
    TinyNet net;
    const auto inner = make_optimizer(GetParam().optimizer, net);
    auto [model, optimizer] = initialize(net, *inner, options());
    for (int step = 0; step < 8; ++step) {
      const std::int64_t before = cast_counts().weight_casts;
      optimizer.zero_grad();
      scale_loss(loss_of(model), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied());
      if (recast) optimizer.invalidate_casts();
      if (step > 0) casts += cast_counts().weight_casts - before;
    }
    return values_of(*net);
  };
  std::int64_t casts = 0;
  std::int64_t recasts = 0;
  const auto ours = train(false, casts);
  const auto cast_each_time = train(true, recasts);
  EXPECT_EQ(casts, 0);
  EXPECT_EQ(recasts, 7 * 4);  // weights and biases of two layers
  EXPECT_TRUE(same_values(ours, cast_each_time));
}

TEST_P(WeightCasts, AreMadeAnewAfterAWriteFromOutside) {
  TinyNet net;
  const auto inner = make_optimizer(GetParam().optimizer, net);
  auto [model, optimizer] = initialize(net, *inner, options());
  const auto iterate = [&, &model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
  };
  iterate();
  iterate();
  {
    const torch::NoGradGuard no_grad;
    net->second->weight.zero_();
    net->second->bias.fill_(1);
  }
  EXPECT_TRUE((model(inputs()) == 1).all().item<bool>());
  iterate();
  net->second->bias.set_data(torch::full({2}, 2.0F));
  net->second->weight.set_data(torch::zeros({2, 8}));
  EXPECT_TRUE((model(inputs()) == 2).all().item<bool>());
}

TEST_P(WeightCasts, OfASkippedStepShowTheWeightsAsTheyAre) {
  TinyNet net;
  const auto inner = make_optimizer(GetParam().optimizer, net);
  auto [model, optimizer] = initialize(net, *inner, options());
  model->eval();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
  }
  const at::Tensor before = model(inputs());
  optimizer.zero_grad();
  // The weight moves between forward and step, which the skipped step leaves as it is.
  const at::Tensor loss = loss_of(model) * INFINITY;
  {
    const torch::NoGradGuard no_grad;
    net->second->bias.add_(1);
  }
  scale_loss(loss, optimizer).backward();
  EXPECT_FALSE(optimizer.step().applied());
  EXPECT_TRUE(torch::allclose(model(inputs()), before + 1, 2e-2, 2e-2));
}

TEST_P(WeightCasts, AreNoneWithAClosureEither) {
  TinyNet net;
  const auto inner = make_optimizer(GetParam().optimizer, net);
  auto [model, optimizer] = initialize(net, *inner, options());
  std::int64_t before = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 1) before = cast_counts().weight_casts;
    optimizer.step([&, &model = model, &optimizer = optimizer] {
      optimizer.zero_grad();
      at::Tensor loss = loss_of(model);
      scale_loss(loss, optimizer).backward();
      return loss;
    });
  }
  EXPECT_EQ(cast_counts().weight_casts, before);
}

TEST_P(WeightCasts, LeaveLowGradientsUntilADeferredStep) {
  const at::ScalarType low = GetParam().level == "O1" ? at::kHalf : at::kBFloat16;
  const auto train = [&](bool deferred, int passes) {
    torch::manual_seed(1);
    TinyNet net;
    const auto inner = make_optimizer(GetParam().optimizer, net);
    Options chosen = options();
    chosen.defer_unscale = deferred;
    auto [model, optimizer] = initialize(net, *inner, chosen);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      for (int pass = 0; pass < passes; ++pass) {
        scale_loss(loss_of(model, inputs() * (pass + 1)), optimizer).backward();
      }
      EXPECT_EQ(net->first->weight.grad().scalar_type(),
                deferred && passes == 1 ? low : at::kFloat);
      EXPECT_EQ(net->norm->weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(optimizer.step().applied());
    }
    return values_of(*net);
  };
  for (const int passes : {1, 3})
    EXPECT_TRUE(same_values(train(true, passes), train(false, passes)));
}

void expect_near_replay(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                        double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(got[i].to(at::kDouble), expected[i].to(at::kDouble), tolerance, tolerance))
        << what << ' ' << i;
  }
}

TEST(FusedStep, LeavesNothingToCastOfANetworkWhoseLowTypeIsEmulated) {
  set_compute_mode(at::kHalf, ComputeMode::kEmulated);
  set_compute_mode(at::kBFloat16, ComputeMode::kEmulated);
  for (const char* level : {"O2", "O3", "O5"}) {
    TinyNet net;
    optim::FusedSGD sgd(net->parameters(), optim::FusedSGDOptions(0.05));
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    for (int step = 0; step < 3; ++step) {
      const std::int64_t before = cast_counts().weight_casts;
      const at::Tensor loss = loss_of(model);
      if (step > 0) {
        EXPECT_EQ(cast_counts().weight_casts - before, 0) << level;
      }
      optimizer.zero_grad();
      scale_loss(loss, optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied());
      if (step > 0 && level == std::string("O3")) {
        EXPECT_EQ(cast_counts().weight_casts - before, 0) << "written by the step itself";
      }
    }
    // They hold the new weights: cast anew, the result is the same.
    model->eval();
    const at::Tensor result = model(inputs());
    optimizer.invalidate_casts();
    EXPECT_TRUE(torch::equal(model(inputs()), result)) << level;
  }
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
  set_compute_mode(at::kBFloat16, ComputeMode::kAuto);
}

TEST(FusedStep, AHalfNetworkOfTheCallersOwnIsCastAnewWhenAskedFor) {
  set_compute_mode(at::kHalf, ComputeMode::kEmulated);
  for (const std::string level : {"O2", "O3"}) {
    torch::manual_seed(1);
    Line net;
    net->to(at::kHalf);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    Options options = at_level(level);
    options.cast_model_type = at::ScalarType::Undefined;
    auto [model, optimizer] = initialize(net, sgd, options);
    model->eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::ones({1, 3}, at::kHalf);
    const auto before = model(x).item<float>();
    net->line->weight.data().fill_(2);  // moves no version
    optimizer.invalidate_casts();
    EXPECT_EQ(model(x).item<float>(), 6) << level << ", before " << before;
  }
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
}

TEST(FusedStep, TakesAWeightWhoseLayoutChanged) {
  for (const std::string level : {"O1", "O2", "O3", "O4", "O5"}) {
    torch::manual_seed(1);
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(4, 3, 2));
    optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.01));
    auto [model, optimizer] = initialize(net, adam, at_level(level));
    const at::Tensor x = torch::ones({1, 4, 5, 5});
    for (int step = 0; step < 3; ++step) {
      if (step == 1) net->weight.set_data(net->weight.contiguous(at::MemoryFormat::ChannelsLast));
      optimizer.zero_grad();
      scale_loss(model(x).to(at::kFloat).mean(), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied()) << level << step;
    }
    const at::Tensor master = master_params(optimizer)[0].detach();
    EXPECT_TRUE(torch::equal(net->weight.detach(), master.to(net->weight.scalar_type()))) << level;
  }
}

TEST(FusedStep, ClipsByTheUnscaledNormDeferredOrNotAsClippingAloneDoes) {
  constexpr double kBound = 0.05;
  const auto train = [&](const std::string& level, bool deferred, bool alone) {
    torch::manual_seed(1);
    TinyNet net;
    optim::FusedNovoGrad novograd(
        std::vector<at::Tensor>{net->first->weight},
        optim::FusedNovoGradOptions(0.01).max_grad_norm(alone ? 0 : kBound));
    optim::FusedAdam adam(
        std::vector<at::Tensor>{net->second->weight, net->second->bias},
        optim::FusedAdamOptions(0.01).eps(1e-3).max_grad_norm(alone ? 0 : kBound));
    Options options = at_level(level);
    options.loss_scale = 256;
    options.defer_unscale = deferred;
    auto [model, optimizers] = initialize(std::tie(net), std::tie(novograd, adam), options);
    auto& handle = std::get<0>(model);
    for (int step = 0; step < 5; ++step) {
      scale_loss(loss_of(handle) * 3, optimizers).backward();
      std::apply(
          [&](auto&... each) {
            if (alone) (optim::clip_grad_norm_(master_params(each), kBound), ...);
            (each.step(), ...);
            (each.zero_grad(), ...);
          },
          optimizers);
    }
    return values_of(*net);
  };
  for (const std::string level : {"O0", "O1", "O2", "O4", "O5"}) {
    const auto expected = train(level, false, true);
    expect_near_replay(train(level, false, false), expected, 1e-4, level);
    expect_near_replay(train(level, true, false), expected, 1e-4, level + " deferred");
  }
}

TEST(FusedStep, InsideLARCGoesTheWayOfTorchsOptimizerThere) {
  const auto train = [](const std::string& level, bool deferred, bool fused) {
    torch::manual_seed(1);
    TinyNet net;
    std::unique_ptr<torch::optim::Optimizer> inner;
    if (fused) {
      inner = std::make_unique<optim::FusedSGD>(
          net->parameters(), optim::FusedSGDOptions(0.05).momentum(0.9).weight_decay(0.01));
    } else {
      inner = std::make_unique<torch::optim::SGD>(
          net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
    }
    optim::LARC larc(*inner);
    Options options = at_level(level);
    options.defer_unscale = deferred;
    auto [model, optimizer] = initialize(net, larc, options);
    for (int step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      scale_loss(loss_of(model) * (step == 4 ? INFINITY : 1), optimizer).backward();
      EXPECT_EQ(optimizer.step().applied(), step != 4);
    }
    return master_params(optimizer);
  };
  for (const std::string level : {"O1", "O2"}) {
    const auto expected = train(level, false, false);
    for (const bool deferred : {false, true}) {
      expect_near_replay(train(level, deferred, true), expected, 1e-4, level);
    }
  }
}

TEST(FusedStep, GivesGradientsTheirTypeBackAtTheEnd) {
  TinyNet net;
  {
    optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.01));
    Options options = at_level("O4");
    options.defer_unscale = true;
    auto [model, optimizer] = initialize(net, adam, options);
    scale_loss(loss_of(model), optimizer).backward();
    EXPECT_EQ(net->first->weight.grad().scalar_type(), at::kBFloat16);
    EXPECT_FALSE(net->first->weight.grad_dtype().has_value());
  }
  EXPECT_EQ(net->first->weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(net->first->weight.grad_dtype(), at::kFloat);
}

TEST(FusedStep, LeavesWeightsWithoutGradientsAndTheirCopiesAlone) {
  TinyNet net;
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.01));
  auto [model, optimizer] = initialize(net, adam, at_level("O1"));
  net->first->weight.requires_grad_(false);
  std::int64_t before = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 1) before = cast_counts().weight_casts;
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(cast_counts().weight_casts, before);
}

TEST(FusedStep, OfAFailedStepNoCopyIsStale) {
  TinyNet net;
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(0.01));
  auto [model, optimizer] = initialize(net, adam, at_level("O1"));
  model->eval();
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
  }
  optimizer.zero_grad();
  scale_loss(loss_of(model), optimizer).backward();
  const at::Tensor before = model(inputs());
  net->second->bias.mutable_grad() = net->first->bias.detach().narrow(0, 0, 2);
  EXPECT_THROW(optimizer.step(), ConfigError);
  EXPECT_TRUE(torch::equal(model(inputs()), before));
}

}  // namespace
}  // namespace mezzo::amp
