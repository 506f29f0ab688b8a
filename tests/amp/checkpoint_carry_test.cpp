// What a checkpoint carries from one way of training into another.
#include <gmock/gmock.h>

#include "amp/checkpoint_training.h"
#include "mezzo/checkpoint.h"
#include "mezzo/error.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

void block(Training& training, double factor, bool delay_unscale, int loss_id = 0) {
  const at::Tensor loss = loss_of(training.model, inputs() * factor);
  scale_loss(loss, training.optimizer, {.loss_id = loss_id, .delay_unscale = delay_unscale})
      .backward();
}

std::vector<at::Tensor> weights_of(const Training& training) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& master : master_params(training.optimizer)) {
    weights.push_back(master.detach().to(at::kFloat, false, /*copy=*/true));
  }
  return weights;
}

TEST(CheckpointCarries, GradientsLeftScaledAtOneLevelToAnother) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"O1", "O2"}, {"O2", "O1"}, {"O2", "O0"}, {"O0", "O2"}, {"O4", "O5"}, {"O5", "O4"}}) {
    for (const bool settled_too : {false, true}) {
      const File file;
      Training source(from, "SGD", "dynamic");
      if (settled_too) block(source, 1, false);
      block(source, 1.5, true);
      save_checkpoint(file.path, source.model, source.optimizer);
      Training target(to, "SGD", "dynamic", 7);
      load_checkpoint(file.path, target.model, target.optimizer);
      const std::vector<at::Tensor> before = weights_of(source);
      for (Training* training : {&source, &target}) {
        block(*training, 2, false);
        EXPECT_TRUE(training->optimizer.step().applied()) << from << " to " << to;
      }
      const std::vector<at::Tensor> expected = weights_of(source);
      const std::vector<at::Tensor> got = weights_of(target);
      double step = 0;
      double error = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        step += (expected[i] - before[i]).square().sum().item<double>();
        error += (expected[i] - got[i]).square().sum().item<double>();
      }
      EXPECT_LT(error, 1e-3 * step) << from << " to " << to << (settled_too ? " both" : "");
    }
  }
}

TEST(CheckpointCarries, AStaticScaleOnlyWhereTheSameWasAskedFor) {
  const File file;
  Training source("O5", "SGD", 1.0);
  source.play(0, 2);
  save_checkpoint(file.path, source.model, source.optimizer);
  Training target("O2", "SGD", 128.0, 7);
  load_checkpoint(file.path, target.model, target.optimizer);
  EXPECT_EQ(target.optimizer.loss_scale(), 128);

  target.optimizer.set_loss_scale(256);
  save_checkpoint(file.path, target.model, target.optimizer);
  Training again("O2", "SGD", 128.0, 7);
  load_checkpoint(file.path, again.model, again.optimizer);
  EXPECT_EQ(again.optimizer.loss_scale(), 256);
}

TEST(CheckpointCarries, NoGradientsOfALossThatIsNotThere) {
  const File file;
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level("O2");
  options.num_losses = 2;
  auto [model, optimizer] = initialize(net, sgd, options);
  scale_loss(loss_of(model), optimizer, {.loss_id = 1, .delay_unscale = true}).backward();
  save_checkpoint(file.path, model, optimizer);

  Training target("O2", "SGD", "dynamic", 7);
  const std::vector<at::Tensor> before = target.everything();
  EXPECT_THAT([&] { load_checkpoint(file.path, target.model, target.optimizer); },
              ThrowsMessage<Error>(HasSubstr("num_losses is 1")));
  EXPECT_TRUE(same_values(target.everything(), before));
}

/// A training whose skipped steps give back the state of random generators, stopped between the
/// overflow and its step.
struct Protected {
  explicit Protected(int seed) : net(Training::seeded(seed)), sgd(net->parameters(), 0.1) {}
  static Options options() {
    Options result = at_level("O1");
    result.protect_rng = true;
    return result;
  }
  void overflow() {
    const at::Tensor loss = loss_of(handles.first) * std::numeric_limits<double>::infinity();
    scale_loss(loss, handles.second).backward();
    torch::rand({3});  // as a dropout would draw
  }
  /// What is drawn after the step, which is skipped.
  at::Tensor draw_after_step() {
    EXPECT_TRUE(handles.second.step().skipped());
    return torch::rand({4});
  }
  TinyNet net;
  torch::optim::SGD sgd;
  std::pair<Model<TinyNet>, Optimizer> handles = initialize(net, sgd, options());
};

TEST(CheckpointCarries, TheRandomStateThatASkipGivesBack) {
  const File file;
  Protected straight(6);
  straight.overflow();
  save_checkpoint(file.path, straight.handles.first, straight.handles.second, {.rng_state = true});
  const at::Tensor expected = straight.draw_after_step();
  for (const bool used : {false, true}) {
    Protected again(7);
    if (used) again.overflow();
    load_checkpoint(file.path, again.handles.first, again.handles.second, {.rng_state = true});
    EXPECT_TRUE(torch::equal(again.draw_after_step(), expected)) << used;
  }
}

TEST(CheckpointCarries, NoRandomStateThatIsNotInTheFile) {
  const File file;
  Training source("O1", "SGD", "dynamic");
  save_checkpoint(file.path, source.model, source.optimizer);
  Training target("O1", "SGD", "dynamic", 7);
  const std::vector<at::Tensor> before = target.everything();
  EXPECT_THAT(
      [&] { load_checkpoint(file.path, target.model, target.optimizer, {.rng_state = true}); },
      ThrowsMessage<Error>(HasSubstr("without rng_state")));
  EXPECT_TRUE(same_values(target.everything(), before));
}

}  // namespace
}  // namespace mezzo::amp
