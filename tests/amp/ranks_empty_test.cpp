// Ranks of which some have no gradients, or gradients that no scope looked at: they decide together
// all the same.
#include <gmock/gmock.h>

#include "amp/training.h"
#include "mezzo/optim.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;
using testing::HasSubstr;

const Rank kSomeEmpty("amp one rank has no gradients", [] {
  start();
  for (const std::string level : {"O1", "O2", "O4", "O5"}) {
    for (const bool deferred : {false, true}) {
      at(level + (deferred ? " deferred" : ""));
      Line net;
      optim::FusedSGD sgd(net->parameters(), optim::FusedSGDOptions(0.125));
      Options options = at_level(level);
      options.defer_unscale = deferred;
      auto [model, optimizer] = initialize(net, sgd, options);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        // Rank 1 has no loss in the first, nobody in the second; the third has an infinity on rank
        // 0, which rank 1 hears of.
        const bool has_loss = step == 3 || (rank() == 0 && step != 1);
        if (has_loss) {
          scale_loss(model(row()).sum() * (step == 2 ? kInf : 1.0), optimizer).backward();
        }
        const StepResult result = optimizer.step();
        EXPECT_EQ(result.skipped(), step == 2) << level << step;
        EXPECT_EQ(result.empty(), !has_loss && step != 2) << level << step;
        if (step == 2) {
          EXPECT_THAT(result.reason(), HasSubstr("on rank 0")) << level;
        }
      }
    }
  }
});

TEST(Ranks, WithoutGradientsTakePartInTheDecisionOfTheOthers) {
  expect_all_pass("amp one rank has no gradients");
}

const Rank kPlain("amp ranks of a plain backward", [] {
  start();
  for (const bool averaged : {false, true}) {
    at(averaged ? "averaged" : "each on its own");
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level("O4"));
    const parallel::DistributedDataParallel ddp(model);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const double factor = step == 1 && rank() == 1 ? kInf : 1.0;
      if (averaged) {
        (ddp(row()).sum() * factor).backward();
      } else {
        const auto guard = ddp.no_sync();
        (ddp(row()).sum() * factor).backward();
      }
      const StepResult result = optimizer.step();
      EXPECT_EQ(result.skipped(), step == 1) << averaged;
      if (step == 1) {
        EXPECT_THAT(result.reason(), HasSubstr("a gradient is not finite on rank 1")) << averaged;
      }
    }
  }
});

TEST(Ranks, SkipTogetherAfterAPlainBackward) {
  expect_all_pass("amp ranks of a plain backward");
}

}  // namespace
}  // namespace mezzo::amp
