// Parts that run again in the backward pass, in several processes: buckets leave as they would, and
// gradients are those of a single process.
#include <gmock/gmock.h>

#include "mezzo/amp.h"
#include "mezzo/parallel.h"
#include "mezzo/recompute.h"
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

/// Which parts are recomputed.
struct Parts {
  const char* name;
  bool first, middle, last, whole;
};
constexpr Parts kParts[] = {{"none", false, false, false, false},
                            {"first", true, false, false, false},
                            {"a layer used twice, inside and outside", false, true, false, false},
                            {"all by themselves", true, true, true, false},
                            {"all, nested in one", true, true, true, true}};

at::Tensor maybe_recomputed(bool again, torch::nn::Linear& layer, const at::Tensor& x) {
  const auto run = [&layer](const at::Tensor& h) { return torch::tanh(layer(h)); };
  return again ? recompute(run, x) : run(x);
}

at::Tensor forward_of(BranchesImpl& net, const at::Tensor& x, const Parts& parts) {
  const auto run = [&net, parts](const at::Tensor& input) {
    at::Tensor h = maybe_recomputed(parts.first, net.first, input);
    h = maybe_recomputed(false, net.left, maybe_recomputed(parts.middle, net.left, h));
    h = maybe_recomputed(parts.middle, net.right, h);
    return maybe_recomputed(parts.last, net.last, h);
  };
  return parts.whole ? recompute(run, x) : run(x);
}

const Rank kRecomputed("ddp recompute", [] {
  start();
  const at::Tensor all = batch_of(5, 4 * world_size());
  for (const Parts& parts : kParts) {
    for (const bool delayed : {false, true}) {
      at(std::string(parts.name) + (delayed ? ", delayed" : ""));
      Branches single = net_of(1);
      Branches net = net_of(1);
      DistributedDataParallel ddp(net, {.message_size = 1, .delay_allreduce = delayed});
      for (int step = 0; step < 3; ++step) {
        single->zero_grad();
        ddp.zero_grad();
        loss_of(forward_of(*single, all, kParts[0])).backward();
        loss_of(ddp.call([&](BranchesImpl& impl) {
          return forward_of(impl, own_rows(all), parts);
        })).backward();
        expect_equal(gradients_of(net), gradients_of(single), parts.name);
        expect_same_on_all_ranks(gradients_of(net), parts.name);
      }
      EXPECT_EQ(ddp.statistics().reductions, 3) << parts.name;
    }
  }
});

TEST(DistributedDataParallel, RecomputedPartsAreReducedOnce) {
  expect_all_pass("ddp recompute");
}

/// Six blocks with dropout and a batch norm, of which the segments but the last run again.
struct DeepImpl : torch::nn::Module {
  explicit DeepImpl(int run_in) : segments(run_in) {
    for (int i = 0; i < 6; ++i) {
      layers->push_back(torch::nn::Linear(6, 6));
      layers->push_back(torch::nn::BatchNorm1d(6));
      layers->push_back(torch::nn::Dropout(0.2));
    }
    register_module("layers", layers);
  }
  at::Tensor forward(const at::Tensor& x) { return recompute_sequential(layers, segments, x); }
  torch::nn::Sequential layers;
  int segments;
};
TORCH_MODULE(Deep);

std::vector<at::Tensor> trained_in_segments(const std::string& level, int segments) {
  torch::manual_seed(3);
  Deep net(segments);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 256, .verbosity = 0});
  DistributedDataParallel ddp(model, {.message_size = 20});
  for (unsigned step = 0; step < 4; ++step) {
    torch::manual_seed(10 + step);
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(ddp(own_rows(batch_of(step, 4 * world_size()))));
    amp::scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
  std::vector<at::Tensor> values;
  for (const at::Tensor& each : net->parameters()) values.push_back(each.detach().clone());
  expect_same_on_all_ranks(values, level);
  for (const at::Tensor& each : net->buffers()) values.push_back(each.clone());
  return values;
}

const Rank kRecomputedLevels("ddp recompute levels", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    at(level);
    const std::vector<at::Tensor> wanted = trained_in_segments(level, 1);
    const std::vector<at::Tensor> got = trained_in_segments(level, 4);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(got[i].equal(wanted[i])) << level << ", tensor " << i;
  }
});

TEST(DistributedDataParallel, RecomputedSegmentsTrainToTheSameBitsAtEveryLevel) {
  expect_all_pass("ddp recompute levels");
}

}  // namespace
}  // namespace mezzo::parallel
