// Weights that are computed, in several processes: the parameters behind them are averaged, and
// training is that of a single process over everybody's rows.
#include "mezzo/amp.h"
#include "mezzo/parallel.h"
#include "mezzo/reparameterization.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::BranchesImpl;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::expect_same_on_all_ranks;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;

/// The float parameters after five steps: of this process over all rows, or of all over theirs.
std::vector<at::Tensor> trained_with_norm(const std::string& level, bool in_parallel) {
  Branches net = net_of(4);
  apply_weight_norm(*net);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 256, .verbosity = 0});
  std::optional<DistributedDataParallel<amp::Model<Branches>>> ddp;
  if (in_parallel) ddp.emplace(model, DDPOptions{.message_size = 20});
  for (unsigned step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor all = batch_of(step, 4 * world_size());
    const at::Tensor loss = loss_of(ddp ? (*ddp)(own_rows(all)) : model(all));
    amp::scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
  std::vector<at::Tensor> values;
  for (const at::Tensor& each : amp::master_params(optimizer))
    values.push_back(each.detach().clone());
  return values;
}

const Rank kNormedLevels("ddp weight norm levels", [] {
  start();
  const Branches fresh = net_of(4);
  for (const std::string level : {"O0", "O1", "O2", "O4", "O5"}) {
    at(level);
    const std::vector<at::Tensor> wanted = trained_with_norm(level, false);
    const std::vector<at::Tensor> got = trained_with_norm(level, true);
    ASSERT_EQ(got.size(), 12U) << level << ": four biases, lengths and directions";
    // Products of low operands round each rank's share of a sum by itself.
    const double tolerance = level == "O0" ? 2e-6 : level < std::string("O4") ? 2e-3 : 2e-2;
    expect_equal(got, wanted, level, tolerance);
    expect_same_on_all_ranks(got, level);
    EXPECT_FALSE(got.back().allclose(fresh->last->weight, 1e-3, 1e-3)) << level << ": it trained";
  }
});

TEST(DistributedDataParallel, ComputedWeightsTrainAsInOneProcessAtEveryLevel) {
  expect_all_pass("ddp weight norm levels");
}

const Rank kNormedBare("ddp weight norm bare", [] {
  start();
  Branches net = net_of(4), single = net_of(4);
  apply_weight_norm(*net);
  apply_weight_norm(*single);
  auto handle = reparameterized(single);
  DistributedDataParallel ddp(net, {.message_size = 20});
  for (unsigned step = 0; step < 3; ++step) {
    single->zero_grad();
    ddp.zero_grad();
    const at::Tensor all = batch_of(step, 4 * world_size());
    loss_of(handle(all)).backward();
    loss_of(ddp.call([&](BranchesImpl& impl) {
      recompute_weights(impl);
      return impl.forward(own_rows(all));
    })).backward();
    expect_equal(gradients_of(net), gradients_of(single), "step " + std::to_string(step));
    const torch::NoGradGuard no_grad;
    for (const Branches& each : {net, single}) {
      for (const at::Tensor& parameter : each->parameters()) parameter.sub_(parameter.grad(), 0.1);
    }
  }
});

TEST(DistributedDataParallel, ABareModuleComputesItsWeightsInsideTheCall) {
  expect_all_pass("ddp weight norm bare");
}

}  // namespace
}  // namespace mezzo::parallel
