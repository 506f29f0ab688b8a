// Ranks that do something else than the others with a DistributedDataParallel: all end with an
// error.
#include <gmock/gmock.h>

#include "mezzo/parallel.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::batch_of;
using testing_ranks::Branches;
using testing_ranks::expect_all_report;
using testing_ranks::loss_of;
using testing_ranks::net_of;
using testing_ranks::Rank;
using testing_ranks::run;
using testing_ranks::start;
using namespace std::chrono_literals;

// Steps until something is thrown.
void train(const DistributedDataParallel<Branches>& ddp, const std::function<void(int)>& before) {
  for (int step = 0; step < 4; ++step) {
    at("step " + std::to_string(step));
    before(step);
    ddp.zero_grad();
    const at::Tensor loss = loss_of(ddp(batch_of(static_cast<unsigned>(step), 4)));
    // As a program that prints its loss does.
    all_reduce_average({loss.detach().clone()});
    loss.backward();
  }
}

const Rank kFreezes("ddp frozen on one rank", [] {
  start(2s);
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 40});
  train(ddp, [&](int step) {
    if (step == 2 && rank() == 1) net->left->weight.set_requires_grad(false);
  });
});

TEST(Failures, AParameterFrozenOnOneRankIsAnErrorOnAll) {
  const auto result = run("ddp frozen on one rank", {.ranks = 3});
  for (const ranks::RankEnd& end : result.ranks) {
    EXPECT_FALSE(end.ended_by_us) << "rank " << end.rank << " hung\n" << result.report;
    EXPECT_EQ(end.end.code, 1) << "rank " << end.rank << " signal " << end.end.signal << '\n'
                               << end.last_lines;
  }
  EXPECT_THAT(result.ranks[1].last_lines, HasSubstr("not all ranks did the same"));
}

const Rank kWays("ddp compressed on one rank", [] {
  start(2s);
  Branches net = net_of(1);
  DistributedDataParallel ddp(net);
  if (rank() == 1) {
    ddp.compress_bf16();
  } else {
    ddp.compress_fp16();
  }
});

TEST(Failures, RanksThatSendByDifferentWaysAreNamed) {
  expect_all_report("ddp compressed on one rank",
                    "rank 0 has 'gradients travel by Half' where rank 1 has 'gradients travel by "
                    "BFloat16'");
}

// A hook that throws when it is called, or when its result is waited for.
void train_with_hook(bool at_the_end) {
  start(5s);
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 40});
  int calls = 0;
  ddp.register_comm_hook(
      [&](const GradientBucket& bucket, const ProcessGroup& group) -> std::function<void()> {
        const bool throws = ++calls == 5 && rank() == 1;
        if (throws && !at_the_end) throw std::runtime_error("a mistake in the hook");
        group.all_reduce(bucket.gradients, ReduceOp::kAverage);
        return [throws] {
          if (throws) throw std::runtime_error("a mistake in the hook");
        };
      });
  train(ddp, [](int) {});
}

const Rank kHookThrows("ddp hook throws", [] { train_with_hook(false); });
const Rank kHookEndThrows("ddp hook throws at the end", [] { train_with_hook(true); });

TEST(Failures, AHookThatThrowsOnOneRankIsNamedByAll) {
  for (const char* name : {"ddp hook throws", "ddp hook throws at the end"}) {
    expect_all_report(name, "a mistake in the hook", {.ranks = 3});
  }
}

}  // namespace
}  // namespace mezzo::parallel
