// The programs of docs/migrating_from_mxnet.md.
#include <gtest/gtest.h>

#include <filesystem>

#include "gluon/judged.h"

namespace mezzo::gluon {
namespace {

/// One loss a sample.
at::Tensor criterion(const at::Tensor& scores, const at::Tensor& target) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(scores, target, F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

TEST(Migration, TheTutorialsThreeLines) {
  const Messages messages;
  const double lr = 0.1, wd = 5e-4, momentum = 0.9;
  auto amp = gluon::init();
  JudgedNet net;
  gluon::Trainer trainer(*net, "sgd", {{"learning_rate", lr}, {"wd", wd}, {"momentum", momentum}});
  gluon::init_trainer(trainer);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    auto loss = criterion(net(judged_batch(0)), judged_labels()).mean();
    gluon::scale_loss(loss, trainer).backward();
    trainer.step(1);
    trainer.zero_grad();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, 0.7 * first);
  EXPECT_EQ(net->a->weight.scalar_type(), at::kFloat);
}

TEST(Migration, TheLoopWithClippingSkippingAndResuming) {
  const Messages messages;
  const std::string file = (std::filesystem::path(testing::TempDir()) / "epoch.states").string();
  auto amp = gluon::init({.target_dtype = "bfloat16",
                          .target_precision_ops = std::vector<std::string>{"+batch_dot"},
                          .fp32_ops = std::vector<std::string>{"-softmax"}});
  JudgedNet net;
  gluon::Trainer trainer(*net, "sgd", {{"learning_rate", 0.1}});
  gluon::init_trainer(trainer);
  gluon::metric::Loss cross_entropy("CrossEntropy");
  const double batch_size = 12;
  int skipped = 0;
  std::vector<double> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    cross_entropy.reset();
    for (int batch = 0; batch < 10; ++batch) {
      trainer.zero_grad();
      auto loss = criterion(net(judged_batch(batch)), judged_labels());
      gluon::scale_loss(loss, trainer).backward();
      trainer.allreduce_grads();
      gluon::unscale(trainer);
      torch::nn::utils::clip_grad_norm_(net->parameters(), 10 * batch_size);
      trainer.update(batch_size);
      if (trainer.last_step_skipped()) ++skipped;
      cross_entropy.update({}, {loss});
    }
    auto [name, value] = cross_entropy.get();
    EXPECT_EQ(name, "CrossEntropy");
    epochs.push_back(value);
    trainer.save_states(file);
  }
  EXPECT_LT(epochs.back(), epochs.front());
  EXPECT_EQ(skipped, 0);
  gluon::Trainer resumed(*net, "sgd", {{"learning_rate", 0.1}});
  gluon::init_trainer(resumed);
  resumed.load_states(file);
  EXPECT_EQ(resumed.loss_scale(), trainer.loss_scale());
}

TEST(Migration, SeveralDevices) {
  const Messages messages;
  auto amp = gluon::init();
  std::vector<JudgedNet> replicas(2);
  const std::vector<at::Device> devices{at::kCPU, at::kCPU};
  gluon::Trainer trainer({replicas[0]->named_parameters(), replicas[1]->named_parameters()}, "sgd",
                         {{"learning_rate", 0.1}});
  gluon::init_trainer(trainer);
  auto data = gluon::split_and_load(judged_batch(0), devices);
  auto target = gluon::split_and_load(judged_labels(), devices);
  trainer.zero_grad();
  std::vector<at::Tensor> losses;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    losses.push_back(criterion(replicas[i](data[i]), target[i]));
  }
  gluon::scale_loss(losses, trainer).backward();
  trainer.step(12);
  EXPECT_TRUE(torch::equal(all_weights(*replicas[0]), all_weights(*replicas[1])));
}

TEST(Migration, SchedulesTrainersAndOutputOperators) {
  const Messages messages;
  auto amp = gluon::init();
  JudgedNet net_g, net_d, net;
  {
    auto cosine = std::make_shared<gluon::CosineScheduler>(
        gluon::CosineSchedulerOptions{.max_update = 1000, .base_lr = 0.1, .warmup_steps = 100});
    gluon::Trainer generator(*net_g, "adam", {{"beta1", 0.5}}, {.lr_scheduler = cosine});
    gluon::Trainer discriminator(*net_d, "adam", {{"beta1", 0.5}});
    gluon::init_trainer(generator);
    gluon::init_trainer(discriminator);
    gluon::scale_loss(criterion(net_g(judged_batch(0)), judged_labels()).mean(), generator)
        .backward();
    generator.step(1);
    EXPECT_DOUBLE_EQ(generator.learning_rate(), 0.001);
  }
  gluon::Trainer trainer(*net, "sgd", {{"learning_rate", 0.1}});
  gluon::init_trainer(trainer);
  auto probabilities =
      gluon::softmax_output(net(judged_batch(0)), judged_labels(), {.normalization = "batch"});
  gluon::scale_loss(probabilities, trainer).backward();
  trainer.step(1);
  // The same step as by the mean of the cross entropy.
  JudgedNet other;
  torch::optim::SGD sgd(other->parameters(), 0.1);
  criterion(other(judged_batch(0)), judged_labels()).mean().backward();
  sgd.step();
  EXPECT_TRUE(torch::allclose(all_weights(*net), all_weights(*other), 1e-3, 1e-4));
}

}  // namespace
}  // namespace mezzo::gluon
