#include "mezzo/legacy_amp.h"

#include <gmock/gmock.h>
#include <torch/library.h>

#include <limits>
#include <thread>

#include "amp/training.h"
#include "mezzo/cast_counts.h"
#include "mezzo/error.h"
#include "mezzo/fp16_utils.h"

namespace mezzo::amp::legacy {
namespace {

using testing::HasSubstr;

constexpr double kInfiniteLoss = std::numeric_limits<double>::infinity();

/// Adds nothing; its result has the type that it was called with.
at::Tensor custom(const at::Tensor& x) {
  return x + 0;
}

TORCH_LIBRARY(mezzo_legacy_test, library) {
  library.def("low(Tensor x) -> Tensor", custom);
  library.def("wide(Tensor x) -> Tensor", custom);
}

at::Tensor call(const char* name, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

template <typename Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::unique_ptr<torch::optim::Optimizer> make(bool adam, const TinyNet& net) {
  if (adam) return std::make_unique<torch::optim::Adam>(net->parameters(), 1e-2);
  return std::make_unique<torch::optim::SGD>(net->parameters(),
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

at::Tensor loss_at(int step, const at::Tensor& output) {
  return torch::nn::functional::cross_entropy(output, targets()) * (step == 7 ? kInfiniteLoss : 1);
}

at::Tensor batch_of(int step) {
  return inputs() * (1 + 0.25 * (step % 4)) + 0.125 * (step % 3);
}

/// Weights and buffers after 20 steps with initialize.
std::vector<at::Tensor> trained_by_o1(bool adam, const LossScale& scale) {
  torch::manual_seed(2);
  TinyNet net;
  const auto inner = make(adam, net);
  Options options{.opt_level = "O1", .loss_scale = scale, .verbosity = 0};
  options.protect_batchnorm = false;  // the old interface does not know the network
  auto [model, optimizer] = initialize(net, *inner, options);
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    scale_loss(loss_at(step, model(batch_of(step))), optimizer).backward();
    optimizer.step();
  }
  return values_of(*net);
}

TEST(LegacyAmp, TheHandleAndO1GiveTheSameTrainingBitForBit) {
  const Listener quiet;
  for (const bool adam : {false, true}) {
    for (const LossScale& scale : {LossScale("dynamic"), LossScale(128)}) {
      const auto expected = trained_by_o1(adam, scale);
      for (const bool wrapped : {false, true}) {
        torch::manual_seed(2);
        TinyNet net;
        const auto sgd = make(adam, net);
        AmpHandle handle = init({.loss_scale = scale});
        if (wrapped) {
          OptimWrapper optimizer = handle.wrap_optimizer(*sgd);
          for (int step = 0; step < 20; ++step) {
            optimizer.zero_grad();
            optimizer.scale_loss(loss_at(step, net(batch_of(step)))).backward();
            optimizer.step();
          }
        } else {
          for (int step = 0; step < 20; ++step) {
            sgd->zero_grad();
            handle.scale_loss(loss_at(step, net(batch_of(step))), *sgd).backward();
            sgd->step();
          }
        }
        EXPECT_TRUE(same_values(values_of(*net), expected))
            << "adam " << adam << " wrapped " << wrapped << " scale " << scale.to_string();
      }
    }
  }
}

TEST(LegacyAmp, CastsBareCallsOnItsThreadWhileItLives) {
  TinyNet net;
  EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
  {
    const AmpHandle handle = init();
    EXPECT_TRUE(handle.is_active());
    EXPECT_EQ(net(inputs()).scalar_type(), at::kHalf);
    const DisableCasts no_casts;
    EXPECT_FALSE(handle.is_active());
    EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
  const AmpHandle handle = init();
  std::thread([&] { EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat); }).join();
}

TEST(LegacyAmp, ADisabledHandleDoesNothingAndHandlesNest) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const AmpHandle outer = init();
  {
    AmpHandle inner = init({.enabled = false});
    EXPECT_FALSE(inner.is_active());
    EXPECT_FALSE(inner.has_cache());
    EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
    const at::Tensor loss = loss_of(net);
    EXPECT_TRUE((*inner.scale_loss(loss, sgd)).is_same(loss));
    OptimWrapper wrapper = inner.wrap_optimizer(sgd);
    wrapper.scale_loss(loss_of(net) * kInfiniteLoss).backward();
    const at::Tensor before = net->first->bias.detach().clone();
    wrapper.step();
    EXPECT_FALSE(torch::equal(net->first->bias, before)) << "nothing is checked";
    wrapper.zero_grad();
    EXPECT_FALSE(net->first->bias.grad().defined());
  }
  EXPECT_EQ(net(inputs()).scalar_type(), at::kHalf);
}

TEST(LegacyAmp, HandlesMoveAndEndInAnyOrder) {
  TinyNet net;
  AmpHandle handle = init();
  handle = init({.enable_caching = false});
  EXPECT_TRUE(handle.is_active());
  EXPECT_FALSE(handle.has_cache());
  EXPECT_EQ(net(inputs()).scalar_type(), at::kHalf);
  {
    const AmpHandle moved = std::move(handle);
    EXPECT_EQ(net(inputs()).scalar_type(), at::kHalf);
  }
  EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  // NOLINTNEXTLINE(bugprone-use-after-move): what a moved-from handle says is the test.
  EXPECT_THAT(message_of([&] { handle.wrap_optimizer(sgd); }), HasSubstr("moved from"));

  auto first = std::make_unique<AmpHandle>(init());
  auto second = std::make_unique<AmpHandle>(init());
  first.reset();
  EXPECT_EQ(net(inputs()).scalar_type(), at::kHalf);
  second.reset();
  EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
  // One that ends on another thread waits for its own.
  auto third = std::make_unique<AmpHandle>(init());
  std::thread([&] { third.reset(); }).join();
  { const AmpHandle next = init(); }
  EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
}

TEST(LegacyAmp, AnOverflowDropsTheGradientsOfABareOptimizer) {
  Listener listener;
  TinyNet net;
  torch::optim::Adam adam(net->parameters(), 1e-2);
  AmpHandle handle = init();
  const at::Tensor before = net->first->weight.detach().clone();
  handle.scale_loss(loss_of(net) * kInfiniteLoss, adam).backward();
  EXPECT_FALSE(net->first->weight.grad().defined());
  EXPECT_THAT(listener.heard, HasSubstr("65536 -> 32768"));
  adam.step();
  EXPECT_TRUE(torch::equal(net->first->weight, before));
  {
    const at::Tensor loss = loss_of(net);
    const ScaledLoss scaled = handle.scale_loss(loss, adam);
    EXPECT_EQ(scaled->item<double>(), 32768 * loss.item<double>());
  }
  handle.scale_loss(loss_of(net) / 64, adam).backward();
  adam.step();
  EXPECT_FALSE(torch::equal(net->first->weight, before));
}

TEST(LegacyAmp, AClosedOrUndoneScopeLetsGoOfTheOptimizer) {
  const Listener quiet;
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  AmpHandle handle = init();
  ScaledLoss first = handle.scale_loss(loss_of(net), sgd);
  first.backward();
  EXPECT_THAT(message_of([&] { auto open = handle.scale_loss(loss_of(net), sgd); }),
              HasSubstr("initialized already"));
  first.close();
  const at::Tensor used = loss_of(net);
  used.backward();  // its graph is gone
  ScaledLoss second = handle.scale_loss(used, sgd);
  EXPECT_THROW(second.backward(), std::exception);
  ScaledLoss third = handle.scale_loss(loss_of(net), sgd);
  third.backward();
  third.close();
  EXPECT_THAT(message_of([&] { first.backward(); }), HasSubstr("after the scope was closed"));
  EXPECT_THAT(message_of([&] { second.backward(); }), HasSubstr("after the scope was closed"));
  EXPECT_NO_THROW(first.close());
  EXPECT_NO_THROW(second.close());
  EXPECT_EQ(first->numel(), 1) << "the scaled loss stays";
  sgd.step();
}

TEST(LegacyAmp, OfTwoLossesOfABareOptimizerTheOverflowedOneMovesNothing) {
  const Listener quiet;
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  AmpHandle handle = init({.loss_scale = 8});
  const auto bias = [&] { return net->second->bias.detach().clone(); };
  const at::Tensor before = bias();
  (handle.scale_loss(net->second->bias.sum() * kInfiniteLoss, sgd)).backward();
  (handle.scale_loss(net->second->bias.sum(), sgd)).backward();
  sgd.step();
  EXPECT_TRUE(torch::equal(bias(), before - 0.125)) << "as legacy_amp.h says";
  (handle.scale_loss(net->second->bias.sum(), sgd)).backward();
  (handle.scale_loss(net->second->bias.sum() * kInfiniteLoss, sgd)).backward();
  sgd.step();
  EXPECT_TRUE(torch::equal(bias(), before - 0.125)) << "an overflow drops what was there";
}

TEST(LegacyAmp, TheEndOfTheScaleIsAnErrorOfTheNextLoss) {
  const Listener quiet;
  TinyNet net;
  AmpHandle handle = init();
  int losses = 0;
  try {
    for (; losses < 200; ++losses) {
      torch::optim::SGD sgd(net->parameters(), 0.1);
      handle.scale_loss(loss_of(net) * kInfiniteLoss, sgd).backward();
    }
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("at its floor"));
  }
  EXPECT_EQ(losses, 30 + 50);  // 2^16 to 2^-14, then 50 at the floor; the next one throws
}

TEST(LegacyAmp, WrappedOptimizersHaveAScaleForEachLossAndSkipIfOneOverflows) {
  const Listener quiet;
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  AmpHandle handle = init();
  OptimWrapper optimizer = handle.wrap_optimizer(sgd, 2);
  const auto bias = [&] { return net->second->bias.detach().clone(); };
  at::Tensor before = bias();
  optimizer.scale_loss(loss_of(net)).backward();
  optimizer.scale_loss(loss_of(net) * kInfiniteLoss).backward();
  optimizer.step();
  EXPECT_TRUE(torch::equal(bias(), before));
  {
    const at::Tensor loss = loss_of(net);
    const ScaledLoss first = optimizer.scale_loss(loss);
    EXPECT_EQ(first->item<double>(), 65536 * loss.item<double>());
  }
  {
    const at::Tensor loss = loss_of(net);
    const ScaledLoss second = optimizer.scale_loss(loss);
    EXPECT_EQ(second->item<double>(), 32768 * loss.item<double>());
  }
  optimizer.step();
  optimizer.zero_grad();
  optimizer.scale_loss(loss_of(net) / 64).backward();
  const at::Tensor once = net->second->bias.grad().clone();
  optimizer.scale_loss(loss_of(net) / 64).backward();
  EXPECT_TRUE(torch::allclose(net->second->bias.grad(), 2 * once, 1e-2, 1e-4));
  optimizer.step();
  EXPECT_FALSE(torch::equal(bias(), before));
  EXPECT_EQ(&optimizer.inner(), &sgd);
}

TEST(LegacyAmp, MisuseIsNamed) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  torch::optim::SGD other(net->parameters(), 0.1);
  {
    AmpHandle handle = init();
    EXPECT_THAT(message_of([&] { initialize(net, sgd); }), HasSubstr("delete init"));
    EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
    EXPECT_THAT(message_of([&] { handle.wrap_optimizer(sgd, 0); }), HasSubstr("num_loss is 0"));
    OptimWrapper optimizer = handle.wrap_optimizer(sgd);
    EXPECT_THAT(message_of([&] { auto scaled = handle.scale_loss(loss_of(net), other); }),
                HasSubstr("what wrap_optimizer returned"));
    EXPECT_THAT(message_of([&] { handle.wrap_optimizer(sgd); }), HasSubstr("already"));
    optimizer.scale_loss(loss_of(net)).backward();
    EXPECT_THAT(message_of([&] { auto scaled = optimizer.scale_loss(loss_of(net)); }),
                HasSubstr("loss 2 of this step"));
    optimizer.step();
    optimizer.scale_loss(loss_of(net)).backward();
  }
  {
    auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
    EXPECT_THAT(message_of([&] { auto handle = init(); }), HasSubstr("delete init"));
    EXPECT_EQ(net(inputs()).scalar_type(), at::kFloat);
    const AmpHandle disabled = init({.enabled = false});
  }
  const AmpHandle handle = init();  // both are gone
  EXPECT_NO_THROW(fp16_utils::FP16_Optimizer(other, {.verbose = false}));
}

TEST(LegacyAmp, WithoutCachingWeightsAreCastAtEachUse) {
  for (const bool cached : {true, false}) {
    TinyNet net;
    AmpHandle handle = init({.enable_caching = cached});
    EXPECT_EQ(handle.has_cache(), cached);
    net(inputs());
    const CastCounts before = cast_counts();
    const at::Tensor twice = net(inputs()) + net(inputs());
    const CastCounts after = cast_counts();
    const auto weights = after.weight_casts - before.weight_casts;
    const auto others = after.activation_casts - before.activation_casts;
    EXPECT_EQ(weights, 0) << cached;
    EXPECT_EQ(others >= 8, !cached) << others << " casts";
    twice.sum().backward();
    EXPECT_TRUE(net->first->weight.grad().defined());
    handle.clear_cache();
    handle.remove_cache(net->first->weight);
    net(inputs());
    const auto anew = cast_counts().weight_casts - after.weight_casts;
    EXPECT_EQ(anew >= 4, cached) << anew << " casts";
  }
}

TEST(LegacyAmp, ClearCacheFreesCopiesOfWeightsThatAreGone) {
  AmpHandle handle = init();
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(
      at::Tensor(torch::ones({1})).getIntrusivePtr());
  {
    TinyNet net;
    weak = decltype(weak)(net->first->weight.getIntrusivePtr());
    net(inputs());
  }
  handle.clear_cache();
  EXPECT_TRUE(weak.expired());
}

TEST(LegacyAmp, AnEvaluationBetweenBackwardAndTheStepOfABareOptimizerHidesNoStep) {
  AmpHandle handle = init();
  const at::Tensor weight = torch::zeros({1, 1}).requires_grad_();
  const at::Tensor one = torch::ones({1, 1});
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
  for (int i = 0; i < 4; ++i) {
    sgd.zero_grad();
    const at::Tensor y = torch::mm(one, weight);
    EXPECT_EQ(y.item<float>(), weight.item<float>());
    {
      ScaledLoss scaled = handle.scale_loss(-y.to(at::kFloat).sum(), sgd);
      scaled.backward();
    }
    {
      const torch::NoGradGuard no_grad;
      torch::mm(one, weight);
    }
    sgd.step();
  }
  EXPECT_GT(weight.item<float>(), 0);
}

TEST(LegacyAmp, TellsEachCastIfVerbose) {
  Listener listener;
  TinyNet net;
  {
    const AmpHandle handle = init({.verbose = true});
    EXPECT_TRUE(handle.verbose());
    net(inputs());
  }
  EXPECT_THAT(listener.heard, HasSubstr("Float -> Half ("));
  listener.heard.clear();
  const AmpHandle handle = init();
  net(inputs());
  EXPECT_EQ(listener.heard, "");
}

TEST(LegacyAmp, BinaryCrossEntropyRunsInFloatWhateverIsAllowed) {
  for (const bool allowed : {false, true}) {
    const AmpHandle handle = init({.allow_banned = allowed});
    const at::Tensor half = torch::full({4}, 0.25, at::kHalf);
    const at::Tensor loss = torch::binary_cross_entropy(half, torch::ones({4}));
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_NEAR(loss.item<double>(), std::log(4.0), 1e-6);
  }
}

TEST(LegacyAmp, WhatAPolicyBansIsAnErrorUnlessItIsAllowed) {
  const at::Tensor half = torch::full({4}, 0.25, at::kHalf);
  const Policy banning =
      Policy::defaults(at::kHalf).with("binary_cross_entropy", CastClass::kBanned);
  {
    const AmpHandle handle = init({.policy = banning});
    EXPECT_THAT([&] { torch::binary_cross_entropy(half, torch::ones({4})); },
                ThrowsMessage<Error>(HasSubstr("binary_cross_entropy")));
  }
  const AmpHandle handle = init({.allow_banned = true, .policy = banning});
  const at::Tensor loss = torch::binary_cross_entropy(half, torch::ones({4}));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), std::log(4.0), 1e-6);
}

TEST(LegacyAmp, APolicyOfAnotherTypeIsAnError) {
  EXPECT_THAT([] { const AmpHandle handle = init({.policy = Policy::defaults(at::kBFloat16)}); },
              ThrowsMessage<ConfigError>(HasSubstr("BFloat16")));
}

TEST(LegacyAmp, AnnotationsOfEitherInterfaceHoldInBoth) {
  legacy::register_half_function("mezzo_legacy_test::low");
  amp::register_float_function("mezzo_legacy_test::wide");
  const auto types_inside = [] {
    const auto own = [](const at::Tensor& x) { return x.scalar_type(); };
    const at::Tensor x = torch::ones({2});
    const at::Tensor low = x.to(at::kHalf);
    return std::vector<at::ScalarType>{
        call("mezzo_legacy_test::low", x).scalar_type(),
        call("mezzo_legacy_test::wide", low).scalar_type(),
        legacy::half_function(own)(x),
        amp::float_function(own)(low),
        legacy::promote_function(
            [](const at::Tensor& a, const at::Tensor& b) { return (a + b).scalar_type(); })(low, x),
    };
  };
  const std::vector<at::ScalarType> cast{at::kHalf, at::kFloat, at::kHalf, at::kFloat, at::kFloat};
  {
    const AmpHandle handle = init();
    EXPECT_EQ(types_inside(), cast);
  }
  TinyNet net;
  for (const std::string& level : kLevels) {
    auto model = initialize(net, at_level(level));
    const auto seen = model.call([&](TinyNetImpl&) { return types_inside(); });
    if (level == "O1") {
      EXPECT_EQ(seen, cast);
    } else if (level == "O4") {
      EXPECT_EQ(seen[0], at::kBFloat16);
      EXPECT_EQ(seen[1], at::kFloat);
    } else {
      // Whole-model levels cast no operators: functions run in the type that arrives.
      EXPECT_EQ(seen, (std::vector<at::ScalarType>{at::kFloat, at::kHalf, at::kFloat, at::kHalf,
                                                   at::kFloat}))
          << level;
    }
  }
}

}  // namespace
}  // namespace mezzo::amp::legacy
