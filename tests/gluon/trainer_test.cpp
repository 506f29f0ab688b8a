#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "gluon/judged.h"

namespace mezzo::gluon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

auto config_error(const char* text) {
  return ThrowsMessage<ConfigError>(HasSubstr(text));
}

/// One step of the judge's training.
void train_step(JudgedNet& net, Trainer& trainer, int step, double batch_size = 12) {
  trainer.zero_grad();
  judged_losses(net, step).sum().backward();
  trainer.step(batch_size);
}

at::Tensor trained(const std::string& optimizer, const OptimizerParams& params,
                   const TrainerOptions& options = {}, double batch_size = 12, int steps = 100) {
  JudgedNet net;
  Trainer trainer(*net, optimizer, params, options);
  for (int step = 0; step < steps; ++step) train_step(net, trainer, step, batch_size);
  return all_weights(*net);
}

void expect_judged(const std::string& name, const at::Tensor& weights) {
  const at::Tensor wanted = judged_tensor(name);
  EXPECT_LE(weights.sub(wanted).abs().max().item<double>(), 1e-5) << name;
}

TEST(Trainer, HundredStepsOfEveryOptimizerAreMxnets) {
  expect_judged("sgd", trained("sgd", {{"learning_rate", 0.1}}));
  expect_judged("sgd_momentum",
                trained("sgd", {{"learning_rate", 0.05}, {"momentum", 0.9}, {"wd", 0.01}}));
  expect_judged(
      "sgd_clip",
      trained("sgd",
              {{"learning_rate", 0.1}, {"momentum", 0.5}, {"wd", 0.02}, {"clip_gradient", 0.05}}));
  expect_judged(
      "sgd_batch",
      trained("sgd", {{"learning_rate", 0.1}, {"momentum", 0.9}, {"rescale_grad", 0.5}}, {}, 7));
  expect_judged("nag", trained("nag", {{"learning_rate", 0.05}}));
  expect_judged("nag_decay",
                trained("nag", {{"learning_rate", 0.05}, {"momentum", 0.9}, {"wd", 0.02}}));
  expect_judged(
      "nag_clip",
      trained("nag",
              {{"learning_rate", 0.05}, {"momentum", 0.9}, {"wd", 0.02}, {"clip_gradient", 0.05}}));
  expect_judged("adam", trained("adam", {}));
  expect_judged("adam_decay",
                trained("adam", {{"learning_rate", 0.01}, {"wd", 0.02}, {"epsilon", 1e-4}}));
  expect_judged("adam_clip", trained("adam", {{"learning_rate", 0.01},
                                              {"wd", 0.1},
                                              {"clip_gradient", 0.05},
                                              {"beta1", 0.8},
                                              {"beta2", 0.99}}));
  expect_judged("adamw", trained("adamw", {{"learning_rate", 0.01}, {"wd", 0.1}}));
  expect_judged("adamw_clip",
                trained("adamw", {{"learning_rate", 0.01}, {"wd", 0.1}, {"clip_gradient", 0.05}}));
  expect_judged(
      "adamw_plain",
      trained("adamw",
              {{"learning_rate", 0.005}, {"wd", 0.1}, {"correct_bias", 0}, {"epsilon", 1e-3}}));
  expect_judged("adagrad", trained("adagrad", {{"learning_rate", 0.05}}));
  expect_judged(
      "adagrad_decay",
      trained("adagrad",
              {{"learning_rate", 0.05}, {"wd", 0.02}, {"eps", 1e-3}, {"clip_gradient", 0.05}}));
  expect_judged("rmsprop", trained("rmsprop", {{"learning_rate", 0.002}}));
  expect_judged("rmsprop_decay", trained("rmsprop", {{"learning_rate", 0.002},
                                                     {"wd", 0.05},
                                                     {"clip_gradient", 0.05},
                                                     {"epsilon", 1e-4}}));
  expect_judged("rmsprop_centered", trained("rmsprop", {{"learning_rate", 0.002},
                                                        {"centered", 1},
                                                        {"wd", 0.05},
                                                        {"epsilon", 1e-3},
                                                        {"clip_weights", 0.45}}));
  expect_judged("lamb", trained("lamb", {{"learning_rate", 0.01}, {"wd", 0.02}}));
  expect_judged("lamb_bounds", trained("lamb", {{"learning_rate", 0.01},
                                                {"wd", 0.02},
                                                {"lower_bound", 0.6},
                                                {"upper_bound", 1.2},
                                                {"clip_gradient", 0.05}}));
  expect_judged("lamb_plain", trained("lamb", {{"learning_rate", 0.01}, {"bias_correction", 0}}));
  expect_judged("signum",
                trained("signum", {{"learning_rate", 0.001}, {"wd", 0.02}, {"wd_lh", 0.1}}));
  expect_judged("signum_plain",
                trained("signum", {{"learning_rate", 0.001}, {"momentum", 0}, {"wd", 0.02}}));
}

TEST(Trainer, HundredStepsOfEveryScheduleAreMxnets) {
  const OptimizerParams sgd{{"learning_rate", 0.1}, {"momentum", 0.9}};
  for (const std::string suffix : {"", "_warm", "_flat"}) {
    const std::int64_t warmup = suffix.empty() ? 0 : 10;
    const double begin = suffix.empty() ? 0 : 0.01;
    const std::string mode = suffix == "_flat" ? "constant" : "linear";
    const auto run = [&](const std::string& name, std::shared_ptr<LRScheduler> schedule) {
      expect_judged(name + suffix, trained("sgd", sgd, {.lr_scheduler = std::move(schedule)}));
    };
    run("factor", std::make_shared<FactorScheduler>(
                      FactorSchedulerOptions{15, 0.5, 0.002, 0.01, warmup, begin, mode}));
    run("multifactor", std::make_shared<MultiFactorScheduler>(MultiFactorSchedulerOptions{
                           {20, 50, 51}, 0.3, 0, 0.01, warmup, begin, mode}));
    run("poly", std::make_shared<PolyScheduler>(
                    PolySchedulerOptions{80, 0.01, 2, 0.001, warmup, begin, mode}));
    run("cosine", std::make_shared<CosineScheduler>(
                      CosineSchedulerOptions{80, 0.01, 0.001, warmup, begin, mode}));
  }
  // Without an explicit rate the schedule's own holds: MXNet's Adam would overwrite it.
  expect_judged("adam_cosine",
                trained("adam", {},
                        {.lr_scheduler = std::make_shared<CosineScheduler>(
                             CosineSchedulerOptions{.max_update = 80, .base_lr = 0.02})}));
}

TEST(Trainer, FactorsOfParametersAreMxnets) {
  expect_judged(
      "sgd_factors",
      trained("sgd", {{"learning_rate", 0.05}, {"momentum", 0.9}, {"wd", 0.05}},
              {.lr_mult = {{"a.weight", 0.5}}, .wd_mult = {{"a.bias", 0}, {"b.bias", 0}}}));
}

/// The same formulas where the kernels do not fit: weights with holes, gradients of another layout.
TEST(Trainer, KernelsAndOperatorsAgree) {
  for (const std::string optimizer : {"sgd", "adam", "adamw", "lamb"}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor values = torch::linspace(-1, 1, 70001, type);
      at::Tensor dense = values.clone().requires_grad_();
      at::Tensor holes = torch::zeros({70001, 2}, type).select(1, 0);
      holes.copy_(values);
      holes.requires_grad_();
      OptimizerParams params{{"learning_rate", 0.03}, {"wd", 0.1}};
      if (optimizer == "sgd") params["momentum"] = 0.9;
      torch::OrderedDict<std::string, at::Tensor> by_kernels, by_operators;
      by_kernels.insert("w", dense);
      by_operators.insert("w", holes);
      Trainer fast(by_kernels, optimizer, params), slow(by_operators, optimizer, params);
      for (int step = 0; step < 5; ++step) {
        const at::Tensor gradient = values.mul(step + 1).sin();
        dense.mutable_grad() = gradient.clone();
        holes.mutable_grad() = gradient.clone();
        fast.step(3);
        slow.step(3);
      }
      EXPECT_TRUE(torch::allclose(dense, holes, 1e-5, 1e-6)) << optimizer << " " << type;
      EXPECT_FALSE(torch::allclose(dense.detach(), values)) << optimizer;
    }
  }
}

TEST(Trainer, StaleGradientsAreRefusedBeforeAnythingMoves) {
  JudgedNet net;
  Trainer trainer(*net, "sgd", {{"learning_rate", 0.1}});
  EXPECT_THAT([&] { trainer.step(1); }, ThrowsMessage<Error>(HasSubstr("'a.weight' is stale")));
  train_step(net, trainer, 0);
  const at::Tensor before = all_weights(*net);
  EXPECT_THAT([&] { trainer.step(12); }, ThrowsMessage<Error>(HasSubstr("stale")));
  net->zero_grad(/*set_to_none=*/false);
  EXPECT_THAT([&] { trainer.step(12); }, ThrowsMessage<Error>(HasSubstr("stale")));
  EXPECT_TRUE(torch::equal(all_weights(*net), before));
  // Only what a backward pass reached is updated.
  net->b(torch::ones({1, 6})).sum().backward();
  const at::Tensor first = net->a->weight.detach().clone(),
                   second = net->b->weight.detach().clone();
  trainer.step(12, /*ignore_stale_grad=*/true);
  EXPECT_TRUE(torch::equal(net->a->weight, first));
  EXPECT_FALSE(torch::equal(net->b->weight, second));
}

TEST(Trainer, FrozenParametersAreLeftAlone) {
  JudgedNet net;
  net->a->weight.set_requires_grad(false);
  Trainer trainer(*net, "adam", {{"wd", 0.1}});
  const at::Tensor before = net->a->weight.clone();
  for (int step = 0; step < 3; ++step) train_step(net, trainer, step);
  EXPECT_TRUE(torch::equal(net->a->weight, before));
}

TEST(Trainer, WrongArgumentsAreErrorsThatHelp) {
  JudgedNet net;
  EXPECT_THAT([&] { Trainer(*net, "sgdd"); }, config_error("did you mean 'sgd'"));
  EXPECT_THAT([&] { Trainer(*net, "sgd", {{"momentun", 0.9}}); }, config_error("'momentum'"));
  EXPECT_THAT(
      [&] {
        Trainer(*net, "sgd", {{"beta1", 0.9}});
      },
      config_error("'sgd' has no argument"));
  EXPECT_THAT([&] { Trainer(*net, "adam", {{"beta1", 1}}); }, config_error("below 1"));
  EXPECT_THAT([&] { Trainer(*net, "adam", {{"wd", NAN}}); }, config_error("finite"));
  EXPECT_THAT(
      [&] {
        Trainer(*net, "adam", {{"eps", 1}, {"epsilon", 1}});
      },
      config_error("same argument"));
  EXPECT_THAT([&] { Trainer(*net, "sgd", {}, {.update_on_kvstore = true}); },
              config_error("overflow"));
  EXPECT_THAT(
      [&] {
        Trainer(*net, "sgd", {}, {.lr_mult = {{"a.wight", 1}}});
      },
      config_error("'a.weight'"));
  EXPECT_THAT([&] { Trainer(torch::nn::Dropout().ptr()->named_parameters(), "sgd"); },
              config_error("no parameters"));
  JudgedNet half;
  half->to(at::kHalf);
  EXPECT_THAT([&] { Trainer(*half, "sgd"); }, config_error("'a.weight' is Half"));
  Trainer trainer(*net, "sgd");
  for (const double size : {0.0, -1.0, static_cast<double>(NAN)}) {
    EXPECT_THAT([&] { trainer.step(size); }, config_error("batch size"));
  }
}

TEST(Trainer, LearningRatesAreReadAndSet) {
  JudgedNet net;
  Trainer trainer(*net, "adam");
  EXPECT_DOUBLE_EQ(trainer.learning_rate(), 0.001);
  trainer.set_learning_rate(0.5);
  EXPECT_DOUBLE_EQ(trainer.learning_rate(), 0.5);
  EXPECT_THAT([&] { trainer.set_learning_rate(-1); }, config_error("0 or more"));
  Trainer scheduled(*net, "adam", {},
                    {.lr_scheduler = std::make_shared<FactorScheduler>(
                         FactorSchedulerOptions{.step = 1, .factor = 0.5, .base_lr = 0.2})});
  EXPECT_DOUBLE_EQ(scheduled.learning_rate(), 0.2);
  EXPECT_THAT([&] { scheduled.set_learning_rate(0.1); }, config_error("lr_scheduler"));
  train_step(net, scheduled, 0);
  train_step(net, scheduled, 1);
  EXPECT_DOUBLE_EQ(scheduled.learning_rate(), 0.1);
}

TEST(Trainer, AnOptimizerOfLibTorchIsStepped) {
  JudgedNet own, other;
  Trainer trainer(*own, "sgd", {{"learning_rate", 0.1}});
  torch::optim::SGD sgd(other->parameters(), 0.1);
  Trainer around(sgd);
  for (int step = 0; step < 3; ++step) {
    train_step(own, trainer, step);
    train_step(other, around, step);
  }
  EXPECT_TRUE(torch::allclose(all_weights(*own), all_weights(*other), 1e-6, 1e-7));
  EXPECT_DOUBLE_EQ(around.learning_rate(), 0.1);
  around.set_learning_rate(0.3);
  EXPECT_DOUBLE_EQ(sgd.param_groups()[0].options().get_lr(), 0.3);
  EXPECT_THAT(
      [&] {
        Trainer(sgd, {.lr_mult = {{"a.weight", 1}}});
      },
      config_error("parameter groups"));
  // A stale gradient that is ignored does not reach the optimizer either, and stays.
  other->b(torch::ones({1, 6})).sum().backward();
  const at::Tensor first = other->a->weight.detach().clone();
  around.step(1, /*ignore_stale_grad=*/true);
  EXPECT_TRUE(torch::equal(other->a->weight, first));
  EXPECT_TRUE(other->a->weight.grad().defined());
}

TEST(Trainer, ReplicasSumTheirGradientsAndStayEqual) {
  JudgedNet whole, left, right;
  const OptimizerParams params{{"learning_rate", 0.1}, {"momentum", 0.9}, {"wd", 0.01}};
  {
    const torch::NoGradGuard no_grad;
    right->a->weight.zero_();  // the first replica's values count
  }
  Trainer one(*whole, "sgd", params);
  Trainer two({left->named_parameters(), right->named_parameters()}, "sgd", params);
  EXPECT_TRUE(torch::equal(left->a->weight, right->a->weight));
  for (int step = 0; step < 5; ++step) {
    train_step(whole, one, step);
    two.zero_grad();
    const auto data = split_and_load(judged_batch(step), {at::kCPU, at::kCPU});
    const auto labels = split_and_load(judged_labels(), {at::kCPU, at::kCPU});
    torch::nn::functional::cross_entropy(left(data[0]), labels[0]).mul(6).backward();
    torch::nn::functional::cross_entropy(right(data[1]), labels[1]).mul(6).backward();
    if (step == 2) {
      EXPECT_THAT([&] { two.update(12); }, ThrowsMessage<Error>(HasSubstr("allreduce_grads")));
      two.allreduce_grads();
      EXPECT_TRUE(torch::equal(left->a->weight.grad(), right->a->weight.grad()));
      two.update(12);
    } else {
      two.step(12);
    }
    EXPECT_TRUE(torch::equal(all_weights(*left), all_weights(*right)));
  }
  EXPECT_TRUE(torch::allclose(all_weights(*whole), all_weights(*left), 1e-5, 1e-6));
  left->b(torch::ones({1, 6})).sum().backward();
  EXPECT_THAT([&] { two.step(12); }, ThrowsMessage<Error>(HasSubstr("replica")));
  EXPECT_THAT(
      [&] {
        Trainer({left->named_parameters(), left->a->named_parameters()}, "sgd");
      },
      config_error("other parameters"));
}

TEST(Trainer, BatchesAreSplitAsMxnetSplitsThem) {
  const at::Tensor data = torch::arange(10).reshape({5, 2});
  const std::vector<at::Device> two{at::kCPU, at::kCPU};
  EXPECT_THAT([&] { (void)split_and_load(data, two); }, config_error("even_split = false"));
  const auto parts = split_and_load(data, two, 0, /*even_split=*/false);
  EXPECT_EQ(parts[0].size(0), 3);
  EXPECT_EQ(parts[1].size(0), 2);
  EXPECT_TRUE(torch::equal(torch::cat({parts[0], parts[1]}), data));
  EXPECT_EQ(split_and_load(data, two, 1)[1].sizes(), (at::IntArrayRef{5, 1}));
  EXPECT_THAT([&] { (void)split_and_load(data.slice(0, 0, 1), two, 0, false); },
              config_error("one row"));
  EXPECT_THAT([&] { (void)split_and_load(data, two, 2); }, config_error("batch_axis"));
  EXPECT_THAT([&] { (void)split_and_load(data, {}); }, config_error("no devices"));
}

TEST(Trainer, ResumesFromItsStates) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "trainer.states").string();
  for (const std::string optimizer :
       {"sgd", "nag", "adam", "adamw", "adagrad", "rmsprop", "lamb", "signum"}) {
    const auto options = [] {
      return TrainerOptions{.lr_scheduler = std::make_shared<PolyScheduler>(
                                PolySchedulerOptions{.max_update = 20, .base_lr = 0.05})};
    };
    OptimizerParams params{{"wd", 0.01}};
    if (optimizer == "sgd" || optimizer == "nag") params["momentum"] = 0.9;
    if (optimizer == "rmsprop") params["centered"] = 1;
    JudgedNet net, resumed;
    Trainer trainer(*net, optimizer, params, options());
    for (int step = 0; step < 4; ++step) train_step(net, trainer, step);
    trainer.save_states(path);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        resumed->parameters()[i].copy_(net->parameters()[i]);
      }
    }
    Trainer other(*resumed, optimizer, params, options());
    other.load_states(path);
    EXPECT_EQ(other.learning_rate(), trainer.learning_rate());
    for (int step = 4; step < 8; ++step) {
      train_step(net, trainer, step);
      train_step(resumed, other, step);
    }
    EXPECT_TRUE(torch::equal(all_weights(*net), all_weights(*resumed))) << optimizer;
  }
  JudgedNet net;
  Trainer adam(*net, "adam");
  EXPECT_THAT([&] { adam.load_states(path); }, ThrowsMessage<Error>(HasSubstr("'signum'")));
  EXPECT_THROW(adam.load_states(path + ".none"), Error);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Trainer around(sgd);
  EXPECT_THAT([&] { around.load_states(path); },
              ThrowsMessage<Error>(HasSubstr("named optimizer")));
  torch::OrderedDict<std::string, at::Tensor> few;
  few.insert("w", torch::ones({2}).requires_grad_());
  Trainer small(few, "signum");
  EXPECT_THAT([&] { small.load_states(path); }, ThrowsMessage<Error>(HasSubstr("4 parameters")));
}

}  // namespace
}  // namespace mezzo::gluon
