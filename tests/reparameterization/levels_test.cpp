// Weight normalisation under a Model: masters, checkpoints, every level.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>

#include "mezzo/amp.h"
#include "mezzo/checkpoint.h"
#include "mezzo/reparameterization.h"

namespace mezzo {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(8, 16))),
        gru(register_module("gru", torch::nn::GRU(16, 8))),
        last(register_module("last", torch::nn::Linear(8, 2))) {}
  at::Tensor forward(const at::Tensor& x) {
    return last(std::get<0>(gru(torch::relu(first(x)))).mean(0));
  }
  torch::nn::Linear first;
  torch::nn::GRU gru;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

Net normed_net() {
  torch::manual_seed(6);
  Net net;
  apply_weight_norm(*net);
  return net;
}

at::Tensor loss_of(const amp::Model<Net>& model) {
  torch::manual_seed(8);
  const at::Tensor x = torch::randn({5, 4, 8});
  return torch::mse_loss(model(x), torch::randn({4, 2}));
}

std::vector<double> losses(const std::string& level) {
  Net net = normed_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 256, .verbosity = 0});
  std::vector<double> all;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model);
    amp::scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
    all.push_back(loss.item<double>());
  }
  for (const auto& item : net->named_parameters())
    EXPECT_TRUE(item.value().grad().defined() || level == "O2" || level == "O5") << item.key();
  return all;
}

TEST(WeightNormLevels, TrainingFollowsFloat) {
  const std::vector<double> wanted = losses("O0");
  EXPECT_LT(wanted.back(), 0.9 * wanted.front());
  for (const char* level : {"O1", "O2", "O3", "O4", "O5"}) {
    const std::vector<double> got = losses(level);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 0.03) << level;
  }
}

TEST(WeightNormLevels, CheckpointsHoldTheParametersAndRestoreThem) {
  for (const char* level : {"O1", "O2"}) {
    const std::string path = testing::TempDir() + "mezzo_weight_norm.ckpt";
    Net net = normed_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = level, .verbosity = 0});
    amp::scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
    amp::save_checkpoint(path, model, optimizer);
    const at::Tensor wanted = loss_of(model);

    Net other = normed_net();
    torch::optim::SGD other_sgd(other->parameters(), 0.1);
    auto [restored, other_optimizer] =
        amp::initialize(other, other_sgd, {.opt_level = level, .verbosity = 0});
    amp::load_checkpoint(path, restored, other_optimizer);
    EXPECT_TRUE(loss_of(restored).equal(wanted)) << level;
    EXPECT_TRUE(amp::model_state_dict(restored).contains("first.weight_g"));
    EXPECT_EQ(std::remove(path.c_str()), 0);
  }
}

}  // namespace
}  // namespace mezzo
