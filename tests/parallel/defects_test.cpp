// Defects that were found in Apex's parallel training, each as a test that Mezzo has not got it.
// The numbers go on from tests/amp/defects_test.cpp.
#include <gmock/gmock.h>

#include <sstream>

#include "mezzo/amp.h"
#include "mezzo/parallel.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::expect_all_pass;
using testing_ranks::expect_equal;
using testing_ranks::expect_same_on_all_ranks;
using testing_ranks::gradients_of;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::own_rows;
using testing_ranks::Rank;
using testing_ranks::start;

const Rank kBFloat16("defect 26", [] {
  start();
  for (const bool delay : {false, true}) {
    for (int backward = 0; backward < 2; ++backward) {
      torch::nn::Linear net(torch::nn::LinearOptions(3, 2).bias(false));
      net->to(at::kBFloat16);
      DistributedDataParallel ddp(net, {.delay_allreduce = delay});
      for (int again = 0; again <= backward; ++again) {
        net->zero_grad();
        // The gradient is this rank's input.
        ddp(torch::full({1, 3}, 2.0 + 4 * rank(), at::kBFloat16)).sum().backward();
      }
      EXPECT_TRUE(net->weight.grad().eq(4).all().item<bool>()) << delay << net->weight.grad();
    }
  }
});

TEST(Defect, Number26BFloat16GradientsAreReduced) {
  expect_all_pass("defect 26");
}

const Rank kDisabledLate("defect 27", [] {
  start();
  for (const std::string level : {"O0", "O2", "O5"}) {
    Branches net = net_of(1);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 1024, .verbosity = 0});
    DistributedDataParallel ddp(model);
    const at::Tensor all = batch_of(2, 4 * world_size());
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const at::Tensor first = loss_of(ddp(own_rows(all)));
      ddp.disable_allreduce();  // after the forward
      amp::scale_loss(first, optimizer).backward();
      ddp.enable_allreduce();
      const at::Tensor second = loss_of(ddp(own_rows(all) * 2));
      amp::scale_loss(second, optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied()) << level;
    }
    expect_same_on_all_ranks(amp::master_params(optimizer), level + ": masters");
  }
});

TEST(Defect, Number27ReductionMayBeSwitchedOffAfterTheForwardAndMastersAgree) {
  expect_all_pass("defect 27");
}

const Rank kBuffers("defect 28", [] {
  start();
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(3).affine(false)),
                            torch::nn::Linear(3, 2));
  DistributedDataParallel ddp(net);
  torch::manual_seed(50 + static_cast<std::uint64_t>(rank()));
  for (int step = 0; step < 2; ++step) ddp(torch::randn({8, 3})).sum().backward();
  const auto mean = [&] { return net->named_buffers()["0.running_mean"]; };
  at::Tensor all = world().all_gather(mean());
  EXPECT_FALSE(torch::equal(all[0], all[1])) << "each rank has seen data of its own since";
  const at::Tensor of_rank_zero = all[0];
  // An update of momentum 0.1 by nothing but zeros.
  ddp(torch::zeros({8, 3})).sum().backward();
  EXPECT_TRUE(torch::allclose(mean(), of_rank_zero * 0.9, 1e-6, 1e-7)) << "not rank 0's statistics";
});

TEST(Defect, Number28BuffersAreRankZeros) {
  expect_all_pass("defect 28");
}

const Rank kSaved("defect 29", [] {
  start();
  Branches net = net_of(3);
  auto ddp = std::make_unique<DistributedDataParallel<Branches>>(net);
  const at::Tensor x = batch_of(4, 5);
  loss_of((*ddp)(x)).backward();
  const DistributedDataParallel<Branches> copy = *ddp;
  ddp.reset();
  net->zero_grad();
  loss_of(copy(own_rows(batch_of(5, 2 * world_size())))).backward();
  expect_same_on_all_ranks(gradients_of(net), "by the copy of a handle that is gone");

  std::stringstream file;
  torch::save(copy.module(), file);
  Branches loaded = net_of(9);
  torch::load(loaded, file);
  EXPECT_TRUE(torch::equal(loaded(x), net(x)));
  DistributedDataParallel again(loaded);
  EXPECT_TRUE(torch::equal(again(x), net(x)));
});

TEST(Defect, Number29WrappersAreCopiedAndWhatTheyWrapIsSavedAndLoaded) {
  expect_all_pass("defect 29");
}

const Rank kUnknown("defect 30", [] {
  start();
  // The first backward never sees the right branch.
  Branches whole = net_of(6);
  Branches net = net_of(6);
  DistributedDataParallel ddp(net);
  const at::Tensor all = batch_of(7, 4 * world_size());
  for (const bool right : {false, true, false, true}) {
    whole->zero_grad();
    net->zero_grad();
    loss_of(whole(all, true, right)).backward();
    loss_of(ddp(own_rows(all), true, right)).backward();
    expect_equal(gradients_of(net), gradients_of(whole), right ? "both branches" : "one branch");
  }
  Branches strict_net = net_of(6);
  DistributedDataParallel strict(strict_net, {.find_unused_parameters = false});
  try {
    loss_of(strict(own_rows(all), true, false)).backward();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'right."));
  }
});

TEST(Defect, Number30AParameterThatComesLaterIsReducedOrNamed) {
  expect_all_pass("defect 30");
}

const Rank kChannelsLast("defect 31", [] {
  start();
  // Channels that are no power of two, many pixels, batches of different sizes.
  const std::int64_t mine = 1 + 2 * rank();
  torch::manual_seed(8);
  const at::Tensor all = torch::randn({4, 40, 41, 6}, at::kDouble) + 3;
  const at::Tensor x = all.narrow(0, rank() == 0 ? 0 : 1, mine);
  torch::nn::BatchNorm2d whole(6);
  whole->to(at::kDouble);
  const at::Tensor expected = whole(all.permute({0, 3, 1, 2})).permute({0, 2, 3, 1});
  for (const bool tracks : {true, false}) {
    SyncBatchNorm norm(SyncBatchNormOptions{
        .num_features = 6, .track_running_stats = tracks, .channel_last = true});
    norm->to(at::kDouble);
    const at::Tensor y = norm(x);
    EXPECT_TRUE(torch::allclose(y, expected.narrow(0, rank() == 0 ? 0 : 1, mine))) << tracks;
    if (tracks) {
      EXPECT_TRUE(torch::allclose(norm->running_mean, whole->running_mean));
      EXPECT_TRUE(torch::allclose(norm->running_var, whole->running_var));
    }
    norm->eval();
    EXPECT_TRUE(norm(x).isfinite().all().item<bool>()) << tracks;
    EXPECT_EQ(norm(torch::randn({5, 6}, at::kDouble)).sizes(), (std::vector<std::int64_t>{5, 6}));
  }
});

TEST(Defect, Number31SyncBatchNormTakesChannelsLastEvaluationAndUnevenBatches) {
  expect_all_pass("defect 31");
}

const Rank kLocal("defect 32", [] {
  start();
  torch::manual_seed(10);
  const at::Tensor all = torch::randn({4 * world_size(), 3});
  torch::nn::BatchNorm1d whole(3);
  whole(all).pow(3).mean().backward();
  torch::nn::Sequential net(SyncBatchNorm(SyncBatchNormOptions{.num_features = 3}));
  DistributedDataParallel ddp(net);
  ddp(own_rows(all)).pow(3).mean().backward();
  const auto parameters = net->named_parameters();
  for (const auto& [name, of_whole] :
       {std::pair("0.weight", whole->weight.grad()), std::pair("0.bias", whole->bias.grad())}) {
    const at::Tensor grad = parameters[name].grad();
    EXPECT_TRUE(torch::allclose(grad, of_whole, 1e-4, 1e-5)) << name;
    const at::Tensor everybodys = world().all_gather(grad);
    EXPECT_TRUE(torch::equal(everybodys[0], everybodys[1])) << name << " differs between ranks";
  }
});

TEST(Defect, Number32GradientsOfSyncBatchNormsWeightsAreAveraged) {
  expect_all_pass("defect 32");
}

}  // namespace
}  // namespace mezzo::parallel
