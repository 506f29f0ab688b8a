// Synchronised batch norms under the levels: replaced ones and marked ones.
#include <gmock/gmock.h>

#include "mezzo/amp.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::at;
using testing_ranks::expect_all_pass;
using testing_ranks::Rank;
using testing_ranks::start;

struct FieldImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  SyncBatchNorm other{nullptr};
  FieldImpl() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    other = register_module("other", SyncBatchNorm(4));
  }
  at::Tensor forward(const at::Tensor& x) { return other(torch::relu(norm(first(x)))); }
};
TORCH_MODULE(Field);

const Rank kLevels("sync batch norm levels", [] {
  start();
  torch::manual_seed(7);
  const at::Tensor all = torch::randn({4 * world_size(), 3});
  const at::Tensor mine = all.narrow(0, 4 * rank(), 4);
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    at(level);
    torch::manual_seed(1);
    Field whole;
    torch::manual_seed(1);
    Field net;
    convert_syncbn_model(net);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .loss_scale = 64.0, .verbosity = 0});
    const bool whole_model = level == "O2" || level == "O3" || level == "O5";
    const at::ScalarType low = level == "O5" ? at::kBFloat16 : at::kHalf;
    const at::ScalarType of_norms = level == "O3" ? at::kHalf : at::kFloat;
    EXPECT_EQ(net->norm->weight.scalar_type(), of_norms) << level;
    EXPECT_EQ(net->other->running_mean.scalar_type(), of_norms) << level;
    EXPECT_EQ(net->first->weight.scalar_type(), whole_model ? low : at::kFloat);
    // The reference is one process: its own synchronised norm is told so.
    whole->other->options.process_group = create_syncbn_process_group(1);
    const double tolerance = level == "O0" ? 1e-5 : 3e-2;
    const auto expect_same = [&](const std::string& when, int collectives) {
      const std::int64_t before = world().counts().collectives;
      const at::Tensor y = model(mine);
      EXPECT_EQ(world().counts().collectives - before, collectives) << level << ' ' << when;
      EXPECT_EQ(y.scalar_type(), at::kFloat) << level;
      const at::Tensor expected = whole(all);
      const at::Tensor error = (y - expected.narrow(0, 4 * rank(), 4)).abs().max();
      EXPECT_LE(error.item<double>(), tolerance) << level << ' ' << when;
      for (const auto& buffer : whole->named_buffers()) {
        const at::Tensor own = net->named_buffers()[buffer.key()].to(at::kDouble);
        const at::Tensor off = (own - buffer.value().to(at::kDouble)).abs().max();
        EXPECT_LE(off.item<double>(), tolerance) << level << ' ' << when << ' ' << buffer.key();
      }
      if (!y.requires_grad()) return;
      at("backward");
      optimizer.zero_grad();
      whole->zero_grad();
      amp::scale_loss((y * y * y).mean(), optimizer).backward();
      expected.pow(3).mean().backward();
      const at::Tensor of_rank = amp::master_params(optimizer)[0].grad().to(at::kDouble);
      const at::Tensor sum = of_rank.clone() / world_size();
      world().all_reduce(sum);
      const at::Tensor wanted = whole->first->weight.grad().to(at::kDouble);
      const double most = wanted.abs().max().item<double>();
      EXPECT_LE((sum - wanted).abs().max().item<double>(), tolerance * (1 + most))
          << level << ' ' << when << ": of " << most;
    };
    expect_same("training", 2);
    expect_same("training again", 2);
    net->eval();
    whole->eval();
    expect_same("evaluation", 0);
    const torch::NoGradGuard no_grad;
    expect_same("evaluation without gradients", 0);
  }
});

TEST(SyncBatchNormLevels, HoldAtEveryLevelAndKeepsNormsInFloat) {
  expect_all_pass("sync batch norm levels", {.ranks = 2});
}

}  // namespace
}  // namespace mezzo::parallel
