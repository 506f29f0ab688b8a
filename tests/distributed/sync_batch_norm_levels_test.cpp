// Synchronised batch norms under the levels: replaced ones and marked ones.
#include <gmock/gmock.h>

#include "distributed/several.h"
#include "mezzo/initialize.h"
#include "mezzo/parallel.h"

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
  const at::Tensor all = torch::linspace(-2, 2, 12 * world_size()).view({-1, 3});
  const at::Tensor mine = all.narrow(0, 4 * rank(), 4);
  for (const std::string level : {"O0", "O1", "O2", "O4"}) {
    at(level);
    torch::manual_seed(1);
    Field whole;
    torch::manual_seed(1);
    Field net;
    convert_syncbn_model(net);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = level, .verbosity = 0});
    EXPECT_EQ(net->norm->weight.scalar_type(), at::kFloat) << level;
    EXPECT_EQ(net->other->running_mean.scalar_type(), at::kFloat) << level;
    EXPECT_EQ(net->first->weight.scalar_type(), level == "O2" ? at::kHalf : at::kFloat);
    const std::int64_t before = world().counts().collectives;
    const at::Tensor y = model(mine);
    EXPECT_EQ(world().counts().collectives - before, 2) << level;
    // The reference is one process: its own synchronised norm is told so.
    whole->other->options.process_group = create_syncbn_process_group(1);
    const at::Tensor expected = whole(all);
    const double tolerance = level == "O0" ? 1e-5 : 3e-2;
    const at::Tensor error = (y - expected.narrow(0, 4 * rank(), 4)).abs().max();
    EXPECT_LE(error.item<double>(), tolerance) << level;
    const at::Tensor off = (net->norm->running_mean - whole->norm->running_mean).abs().max();
    EXPECT_LE(off.item<double>(), tolerance) << level;
  }
});

TEST(SyncBatchNormLevels, HoldAtEveryLevelAndKeepsNormsInFloat) {
  expect_all_pass("sync batch norm levels", {.ranks = 2});
}

}  // namespace
}  // namespace mezzo::parallel
