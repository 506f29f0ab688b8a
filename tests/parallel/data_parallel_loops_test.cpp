// Loops that are not the simple one: accumulation, frozen parameters, several backwards,
// exceptions, ranks without data, against one process on all of the data.
#include <gmock/gmock.h>

#include "mezzo/parallel.h"
#include "parallel/agreement.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::BranchesImpl;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::expect_same_on_all_ranks;
using testing_ranks::Gradients;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;

const Rank kPatterns("ddp patterns", [] {
  start();
  Branches single = net_of(1);
  Branches net = net_of(static_cast<unsigned>(1 + rank()));
  DistributedDataParallel ddp(net, {.message_size = 50});
  const auto whole = [&](unsigned seed) { return batch_of(seed, 4 * world_size()); };
  const auto clear = [&](bool none) {
    single->zero_grad(none);
    net->zero_grad(none);
  };
  at("unused everywhere");
  for (int step = 0; step < 2; ++step) {
    clear(true);
    loss_of(single->forward(whole(1), true, false)).backward();
    loss_of(ddp(own_rows(whole(1)), true, false)).backward();
    expect_equal(gradients_of(net), gradients_of(single), "unused everywhere");
  }
  at("unused on some ranks");
  clear(true);
  const int p = world_size();
  for (int r = 0; r < p; ++r) {
    loss_of(single->forward(whole(2).narrow(0, r * 4, 4), r == 0, true)).div(p).backward();
  }
  loss_of(ddp(own_rows(whole(2)), rank() == 0, true)).backward();
  expect_equal(gradients_of(net), gradients_of(single), "unused on some ranks");

  at("accumulation from the first backward on");
  {
    Branches fresh = net_of(7);
    Branches alone = net_of(7);
    DistributedDataParallel wrapped(fresh, {.message_size = 50});
    loss_of(alone->forward(whole(8))).backward();
    loss_of(alone->forward(whole(9), true, false)).backward();
    {
      const auto guard = wrapped.no_sync();
      loss_of(wrapped(own_rows(whole(8)))).backward();
      EXPECT_TRUE(is_bucket_view(fresh->right->weight.grad()));
    }
    loss_of(wrapped(own_rows(whole(9)), true, false)).backward();
    expect_equal(gradients_of(fresh), gradients_of(alone), "accumulation from the first on");
  }

  at("accumulation");
  clear(true);
  for (unsigned micro = 0; micro < 3; ++micro) {
    loss_of(single->forward(whole(10 + micro), true, micro != 2)).backward();
    if (micro < 2) {
      const auto guard = ddp.no_sync();
      loss_of(ddp(own_rows(whole(10 + micro)))).backward();
      EXPECT_FALSE(spread_by_reduction({net->first->weight.grad()}, world()));
    } else {
      // The branch used in earlier micro steps alone is reduced too.
      loss_of(ddp(own_rows(whole(10 + micro)), true, false)).backward();
    }
  }
  expect_equal(gradients_of(net), gradients_of(single), "accumulation");

  at("disable and enable");
  clear(false);
  loss_of(single->forward(whole(20))).backward();
  loss_of(single->forward(whole(21))).backward();
  ddp.disable_allreduce();
  loss_of(ddp(own_rows(whole(20)))).backward();
  ddp.enable_allreduce();
  loss_of(ddp(own_rows(whole(21)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "disable and enable");

  at("two reduced backwards");
  clear(true);
  for (unsigned micro = 0; micro < 2; ++micro) {
    loss_of(single->forward(whole(30 + micro), true, micro == 0)).backward();
    loss_of(ddp(own_rows(whole(30 + micro)), true, micro == 0)).backward();
  }
  expect_equal(gradients_of(net), gradients_of(single), "two reduced backwards");

  at("two forwards, one backward");
  clear(true);
  (loss_of(single->forward(whole(40))) + loss_of(single->forward(whole(41)))).backward();
  const at::Tensor a = loss_of(ddp(own_rows(whole(40))));
  (a + loss_of(ddp(own_rows(whole(41))))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "two forwards");

  at("frozen");
  clear(true);
  for (const Branches& one : {single, net}) one->left->weight.set_requires_grad(false);
  loss_of(single->forward(whole(50))).backward();
  loss_of(ddp(own_rows(whole(50)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "frozen");
  for (const Branches& one : {single, net}) one->left->weight.set_requires_grad(true);
  clear(true);
  loss_of(single->forward(whole(51))).backward();
  loss_of(ddp(own_rows(whole(51)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "unfrozen");

  at("an exception in every rank's backward");
  clear(true);
  at::Tensor broken = ddp(own_rows(whole(60)));
  const at::Tensor middle = broken.mul(1);
  middle.register_hook(
      [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
  EXPECT_ANY_THROW(loss_of(middle).backward());
  clear(true);
  loss_of(single->forward(whole(61))).backward();
  loss_of(ddp(own_rows(whole(61)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "after an exception");

  at("a loss without parameters on one rank");
  clear(true);
  loss_of(single->forward(whole(70).narrow(0, 0, 4))).div(p).backward();
  if (rank() == 0) {
    loss_of(ddp(own_rows(whole(70)))).backward();
  } else {
    ddp(own_rows(whole(70)));
    ddp.finish_backward();
  }
  expect_equal(gradients_of(net), gradients_of(single), "a loss without parameters");

  at("the bare module");
  clear(true);
  loss_of(single->forward(whole(80))).backward();
  loss_of(ddp.module()->forward(own_rows(whole(80)))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "the bare module");
  EXPECT_EQ(
      ddp.call([&](BranchesImpl& impl) { return impl.forward(whole(80), true, false).size(0); }),
      4 * p);
  EXPECT_EQ(ddp->forward(whole(80)).size(1), 3);
  EXPECT_EQ(ddp->parameters().size(), 8U);
});

TEST(DistributedDataParallel, GivesOneProcessesGradientsWhateverTheLoopDoes) {
  expect_all_pass("ddp patterns", {.ranks = 2});
  expect_all_pass("ddp patterns", {.ranks = 4});
}

const Rank kBroken("ddp broken backward", [] {
  // One rank's backward throws in the middle and the rank goes on; the others get an error instead
  // of a hang or of another step's gradients, and after that all work together again.
  start();
  Branches single = net_of(3);
  Branches net = net_of(3);
  DistributedDataParallel ddp(net, {.message_size = 1, .retain_allreduce_buffers = true});
  for (const bool breaks : {false, true, false, true}) {
    at(breaks ? "a step that breaks" : "a step that holds");
    single->zero_grad();
    ddp.zero_grad();
    const at::Tensor all = batch_of(5, 4 * world_size());
    const at::Tensor loss = ddp.call([&](BranchesImpl& impl) {
      at::Tensor h = torch::tanh(impl.first(own_rows(all)));
      if (breaks && rank() == 1) {
        h.register_hook(
            [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
      }
      return loss_of(impl.last(h));
    });
    if (breaks) {
      try {
        loss.backward();
        FAIL() << "nothing was thrown";
      } catch (const std::exception& e) {
        EXPECT_THAT(e.what(), HasSubstr(rank() == 1 ? "on purpose" : "broke off on another rank"));
      }
    } else {
      loss_of(single->last(torch::tanh(single->first(all)))).backward();
      loss.backward();
      expect_equal(gradients_of(net), gradients_of(single), "a step that holds");
      // The numbers of the break are gone, also from between gradients.
      for (const at::Tensor& flat : ddp.allreduce_buffers()) {
        EXPECT_TRUE(flat.isfinite().all().item<bool>()) << flat;
      }
    }
  }
});

TEST(DistributedDataParallel, ABackwardThatBreaksOffIsAnErrorOnAllAndNothingMore) {
  expect_all_pass("ddp broken backward", {.ranks = 3});
}

const Rank kJoin("ddp join", [] {
  start();
  Branches net = net_of(static_cast<unsigned>(rank()));
  DistributedDataParallel ddp(net, {.message_size = 50});
  torch::optim::SGD optimizer(ddp.parameters(), 0.1);
  const int batches = rank() == 1 ? 2 : 5;
  {
    auto guard = ddp.join();
    EXPECT_THROW((void)ddp.join(), Error);
    for (int i = 0; i < batches; ++i) {
      at("batch " + std::to_string(i));
      optimizer.zero_grad();
      if (i % 2 == 1) {
        const auto accumulate = ddp.no_sync();
        loss_of(ddp(batch_of(static_cast<unsigned>(i), 4))).backward();
        EXPECT_EQ(agree_max(torch::ones({1}), world()).item<float>(), 1);
      }
      loss_of(ddp(batch_of(static_cast<unsigned>(i), 4))).backward();
      optimizer.step();
    }
    at("closing");
    guard.close();
  }
  Gradients weights;
  for (const auto& p : net->parameters()) weights.push_back(p.detach());
  expect_same_on_all_ranks(weights, "weights after join");
  EXPECT_EQ(net->named_buffers()["seen"].item<float>(), 4 * 7);
  // And all together again.
  loss_of(ddp(batch_of(77, 4))).backward();
  expect_same_on_all_ranks(gradients_of(net), "gradients after join");
});

TEST(DistributedDataParallel, ARankWithoutDataTakesPartUntilTheOthersEnd) {
  expect_all_pass("ddp join", {.ranks = 3});
}

const Rank kFrozen("ddp frozen gradients", [] {
  // The usual order of a loop: a weight is frozen, gradients are zeroed, the model is called.
  start();
  Branches net = net_of(1);
  DistributedDataParallel ddp(net);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.5));
  const at::Tensor x = own_rows(batch_of(1, 4 * world_size()));
  const auto step = [&] {
    ddp.zero_grad();
    loss_of(ddp(x)).backward();
    sgd.step();
  };
  step();
  net->left->weight.set_requires_grad(false);
  const at::Tensor before = net->left->weight.detach().clone();
  step();
  EXPECT_FALSE(net->left->weight.grad().defined());
  step();
  EXPECT_TRUE(torch::equal(net->left->weight, before));
  net->left->weight.set_requires_grad(true);
  Branches single = net_of(1);
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 8; ++i) single->parameters()[i].copy_(net->parameters()[i]);
  }
  ddp.zero_grad();
  loss_of(ddp(x)).backward();
  loss_of(single->forward(batch_of(1, 4 * world_size()))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "unfrozen");
});

TEST(DistributedDataParallel, AFrozenWeightStaysWhereItIs) {
  expect_all_pass("ddp frozen gradients");
}

const Rank kQuiet("ddp backwards that say nothing", [] {
  start();
  Branches single = net_of(1);
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 50});
  const at::Tensor all = batch_of(3, 4 * world_size());
  at("no parameter in a micro-batch that only accumulates");
  {
    const auto guard = ddp.no_sync();
    if (rank() == 0) ddp.finish_backward();
  }
  loss_of(single->forward(all)).backward();
  loss_of(ddp(own_rows(all))).backward();
  expect_equal(gradients_of(net), gradients_of(single), "after finish_backward in no_sync");
  EXPECT_EQ(ddp.statistics().reductions, 1);

  at("accumulated and dropped");
  {
    const auto guard = ddp.no_sync();
    loss_of(ddp(own_rows(all))).backward();
  }
  net->zero_grad();
  single->zero_grad();
  loss_of(single->forward(all, true, false)).backward();
  loss_of(ddp(own_rows(all), true, false)).backward();
  expect_equal(gradients_of(net), gradients_of(single), "what was dropped is unused");
});

TEST(DistributedDataParallel, WhatOnlyAccumulatesOrWasDroppedIsNotSent) {
  expect_all_pass("ddp backwards that say nothing");
}

// A loss with the size of its own gradients in it.
template <class Forward>
at::Tensor penalised(Forward&& forward, const Branches& net, const at::Tensor& x) {
  const at::Tensor loss = loss_of(forward(x));
  at::Tensor total = loss;
  for (const at::Tensor& gradient :
       torch::autograd::grad({loss}, net->parameters(), {}, true, /*create_graph=*/true)) {
    total = total + gradient.square().sum();
  }
  return total;
}

const Rank kPenalty("ddp gradient penalty", [] {
  start();
  Branches single = net_of(1);
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 50});
  const at::Tensor all = batch_of(3, 4 * world_size());
  for (int step = 0; step < 3; ++step) {
    at("penalty " + std::to_string(step));
    single->zero_grad();
    ddp.zero_grad();
    for (int r = 0; r < world_size(); ++r) {
      (penalised(single, single, all.narrow(0, 4 * r, 4)) / world_size()).backward();
    }
    penalised(ddp, net, own_rows(all)).backward();
    expect_equal(gradients_of(net), gradients_of(single), "penalty");
  }
  EXPECT_EQ(ddp.statistics().reductions, 3);

  at("gradients with graphs of their own");
  single->zero_grad();
  ddp.zero_grad();
  for (int micro = 0; micro < 2; ++micro) {
    loss_of(single->forward(all)).backward();
    loss_of(ddp(own_rows(all))).backward({}, true, /*create_graph=*/true);
    expect_equal(gradients_of(net), gradients_of(single), "create_graph");
    EXPECT_FALSE(net->first->weight.grad().requires_grad());
    EXPECT_TRUE(is_bucket_view(net->first->weight.grad()));
  }
});

TEST(DistributedDataParallel, APenaltyOnGradientsIsAveragedWithTheLoss) {
  expect_all_pass("ddp gradient penalty");
}

}  // namespace
}  // namespace mezzo::parallel
