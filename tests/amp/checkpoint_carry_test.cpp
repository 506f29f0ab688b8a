// The state that a checkpoint carries from one way of training into another.
#include <gmock/gmock.h>

#include <functional>

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

TEST(CheckpointCarries, GradientsLeftScaledToWhereNothingIsScaled) {
  for (const std::string to : {"O0", "O3", "O4", "O5"}) {
    for (const bool defers : {false, true}) {
      const File file;
      const auto left_scaled = [&](Training& training) {
        const at::Tensor loss = loss_of(training.model, inputs());
        scale_loss(loss, training.optimizer, {.delay_unscale = true}).backward();
      };
      Training source("O1", "SGD", "dynamic");
      left_scaled(source);
      save_checkpoint(file.path, source.model, source.optimizer);
      TinyNet net = Training::seeded(7);
      torch::optim::SGD sgd(net->parameters(), 0.05);
      Options options = at_level(to);
      options.defer_unscale = defers;
      auto [model, optimizer] = initialize(net, sgd, options);
      load_checkpoint(file.path, model, optimizer);
      const std::vector<at::Tensor> before = weights_of(source);
      source.optimizer.zero_grad();
      scale_loss(loss_of(model, inputs()) * 0, optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied());
      double step = 0;
      const auto masters = master_params(optimizer);
      for (std::size_t i = 0; i < before.size(); ++i)
        step += (masters[i].detach().to(at::kFloat) - before[i]).square().sum().item<double>();
      // 0.05 of a gradient whose norm is about 1.
      EXPECT_LT(step, 0.1) << to << defers;
      EXPECT_GT(step, 1e-6) << to << defers;
    }
  }
}

TEST(CheckpointCarries, NothingOfGradientsThatAreNotAskedFor) {
  const File file;
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level("O2");
  options.num_losses = 2;
  auto [model, optimizer] = initialize(net, sgd, options);
  const double infinity = std::numeric_limits<double>::infinity();
  scale_loss(loss_of(model) * infinity, optimizer, {.loss_id = 0}).backward();
  scale_loss(loss_of(model), optimizer, {.loss_id = 1, .delay_unscale = true}).backward();
  for (const bool are_saved : {true, false}) {
    save_checkpoint(file.path, model, optimizer, {.gradients = are_saved});
    for (const bool are_loaded : {false, true}) {
      if (are_saved && are_loaded) continue;
      // One loss: those of the other could not be loaded.
      Training target("O2", "SGD", "dynamic", 7);
      load_checkpoint(file.path, target.model, target.optimizer, {.gradients = are_loaded});
      block(target, 1, false);
      EXPECT_TRUE(target.optimizer.step().applied()) << "the overflow went with its gradients";
    }
  }
}

TEST(CheckpointCarries, AFusedAdamOfBothKindsToNoOptimizerThatIsOne) {
  const File file;
  TinyNet net;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(net->first->parameters(), std::make_unique<optim::FusedAdamOptions>(
                                                    optim::FusedAdamOptions().adam_w_mode(true)));
  groups.emplace_back(net->second->parameters(), std::make_unique<optim::FusedAdamOptions>(
                                                     optim::FusedAdamOptions().adam_w_mode(false)));
  optim::FusedAdam both(groups, optim::FusedAdamOptions());
  auto [model, optimizer] = initialize(net, both, at_level("O1"));
  save_checkpoint(file.path, model, optimizer);
  load_checkpoint(file.path, model, optimizer);

  TinyNet other;
  groups.clear();
  groups.emplace_back(other->first->parameters());
  groups.emplace_back(other->second->parameters());
  torch::optim::Adam adam(groups, torch::optim::AdamOptions());
  auto [other_model, other_optimizer] = initialize(other, adam, at_level("O1"));
  const auto load = [&](auto& into, auto& with) { load_checkpoint(file.path, into, with); };
  EXPECT_THAT(std::bind_front(load, std::ref(other_model), std::ref(other_optimizer)),
              ThrowsMessage<Error>(HasSubstr("of class Adam or AdamW; got Adam")));
  save_checkpoint(file.path, other_model, other_optimizer);
  EXPECT_THAT(std::bind_front(load, std::ref(model), std::ref(optimizer)),
              ThrowsMessage<Error>(HasSubstr("of class Adam; got Adam or AdamW")));
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
  /// A number drawn after the step, which is skipped.
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
