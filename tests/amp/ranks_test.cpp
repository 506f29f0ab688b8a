// Overflow flags and gradients that several processes share.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <limits>

#include "amp/training.h"
#include "mezzo/checkpoint.h"
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

/// One training of each rank's own; rank 1 overflows in the second of three steps.
void train_with_overflow(const Options& options, bool shared) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, options);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const bool overflows = step == 1 && rank() == 1;
    scale_loss(model(row()).sum() * (overflows ? kInf : 1.0), optimizer).backward();
    const bool skips = step == 1 && (shared || rank() == 1);
    EXPECT_EQ(optimizer.step().skipped(), skips) << step;
  }
  EXPECT_EQ(optimizer.loss_scale(), shared || rank() == 1 ? 512 : 1024);
}

const Rank kAgree("amp agrees", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    train_with_overflow(at_level(level), /*shared=*/true);
    Options deferred = at_level(level);
    deferred.defer_unscale = true;
    train_with_overflow(deferred, /*shared=*/true);
    Options alone = at_level(level);
    alone.overflow_group = OverflowGroup::none();
    train_with_overflow(alone, /*shared=*/false);
  }
});

TEST(Ranks, SkipTogetherUnlessToldToDecideAlone) {
  expect_all_pass("amp agrees");
}

const Rank kAverages("amp averages", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O5"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const parallel::DistributedDataParallel ddp(model);
    at::Tensor expected = master_params(optimizer)[0].detach().clone();
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const double mine = rank() + 1;
      // Accumulation: the first micro-batch stays at home, also that of the first step of all.
      if (step == 0 || step == 3) {
        const auto guard = ddp.no_sync();
        scale_loss(ddp(row(mine)).sum(), optimizer).backward();
      }
      const bool overflows = step == 1 && rank() == 0 && level != "O0" && level != "O5";
      scale_loss(ddp(row(mine)).sum() * (overflows ? kInf : 1.0), optimizer).backward();
      const bool skips = step == 1 && level != "O0" && level != "O5";
      EXPECT_EQ(optimizer.step().skipped(), skips) << level << " step " << step;
      if (!skips) expected = expected - 0.125 * row(step == 0 || step == 3 ? 3.0 : 1.5);
      EXPECT_TRUE(torch::allclose(master_params(optimizer)[0], expected, 1e-4, 1e-5))
          << level << " step " << step << "\n"
          << master_params(optimizer)[0] << "\n"
          << expected;
    }
  }
});

const Rank kFirst("amp begins equal", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O3", "O5"}) {
    torch::manual_seed(100 + rank());
    torch::nn::Sequential net(torch::nn::Linear(7, 9), torch::nn::BatchNorm1d(9),
                              torch::nn::Linear(9, 2));
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor own = master_params(optimizer)[0].detach().clone();
    const parallel::DistributedDataParallel ddp(model);
    const auto expect_equal_ranks = [&](const std::string& when) {
      for (const at::Tensor& master : master_params(optimizer)) {
        const at::Tensor all = parallel::world().all_gather(master.detach().contiguous());
        EXPECT_TRUE(torch::equal(all[0], all[1])) << level << ' ' << when;
      }
      for (const auto& item : model_state_dict(model)) {
        const at::Tensor all = parallel::world().all_gather(item.value().contiguous());
        EXPECT_TRUE(torch::equal(all[0], all[1])) << level << ' ' << when << ' ' << item.key();
      }
    };
    expect_equal_ranks("at the beginning");
    // Rank 0's masters have not gone through their low type.
    if (rank() == 0) {
      EXPECT_TRUE(torch::equal(master_params(optimizer)[0], own)) << level;
    }
    {
      auto join = ddp.join();
      for (int step = 0; step < (rank() == 0 ? 2 : 4); ++step) {
        optimizer.zero_grad();
        scale_loss(ddp(torch::randn({4, 7})).square().mean(), optimizer).backward();
        optimizer.step();
      }
      join.close();
    }
    expect_equal_ranks("after a join");
  }
});

// Three steps, of which rank 1 overflows in the first and the last, and both ranks in a fourth.
template <class Forward>
void expect_names(amp::Optimizer& optimizer, const std::string& where, const Forward& forward) {
  std::vector<std::int64_t> collectives;
  for (int step = 0; step < 4; ++step) {
    const std::int64_t before = parallel::world().counts().collectives;
    const bool overflows = step == 3 || (rank() == 1 && step != 1);
    optimizer.zero_grad();
    scale_loss(forward(row()).sum() * (overflows ? kInf : 1.0), optimizer).backward();
    const StepResult result = optimizer.step();
    EXPECT_EQ(result.skipped(), step != 1) << where;
    const std::string whom = step == 3 && where != "agreed" ? "on ranks 0, 1" : "on rank ";
    if (step != 1) {
      EXPECT_THAT(result.reason(), HasSubstr(whom)) << where << " step " << step;
      EXPECT_THAT(result.reason(), HasSubstr(", first in 'line.weight'")) << where;
    }
    if (step == 0 || step == 2) {
      EXPECT_THAT(result.reason(), HasSubstr(" on rank 1, first")) << where << " step " << step;
    }
    collectives.push_back(parallel::world().counts().collectives - before);
  }
  // The name costs no collective.
  EXPECT_EQ(collectives[1], collectives[2]) << where;
}

const Rank kNames("amp names the rank", [] {
  start();
  for (const std::string level : {"O1", "O2"}) {
    for (const bool deferred : {false, true}) {
      for (const bool wrapped : {false, true}) {
        Options options = at_level(level);
        options.defer_unscale = deferred;
        Line net;
        torch::optim::SGD sgd(net->parameters(), 0.125);
        optim::FusedSGD fused(net->parameters(), optim::FusedSGDOptions(0.125));
        const auto train = [&](auto& inner) {
          auto [model, optimizer] = initialize(net, inner, options);
          if (wrapped) {
            const parallel::DistributedDataParallel ddp(model);
            expect_names(optimizer, level, [&](const at::Tensor& x) { return ddp(x); });
          } else {
            expect_names(optimizer, "agreed", [&](const at::Tensor& x) { return model(x); });
          }
        };
        if (deferred) {
          train(fused);
        } else {
          train(sgd);
        }
      }
    }
  }
});

TEST(Ranks, ASkippedStepNamesRankAndParameterAtNoCollective) {
  expect_all_pass("amp names the rank");
}

const Rank kSum("amp names the average", [] {
  start();
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(
      net, sgd, {.opt_level = "O0", .loss_scale = 1.0, .verbosity = 0, .check_finite = true});
  const parallel::DistributedDataParallel ddp(model);
  scale_loss(ddp(row(1.2e38)).sum(), optimizer).backward();
  EXPECT_THAT(optimizer.step().reason(), HasSubstr("in the average over the ranks"));

  at("torch.amp's scaler");
  Line bare;
  torch::optim::SGD plain(bare->parameters(), 0.125);
  GradScaler scaler({.init_scale = 1024});
  const parallel::DistributedDataParallel over(bare);
  scaler.scale(over(row()).sum() * (rank() == 1 ? kInf : 1.0)).backward();
  EXPECT_THAT(scaler.step(plain).reason(), HasSubstr("not finite on rank 1"));
});

TEST(Ranks, AnAverageThatOverflowsAloneIsToldApart) {
  expect_all_pass("amp names the average");
}

std::string checkpoint_of(int of_rank) {
  return std::string(std::getenv("CHECKPOINT")) + std::to_string(of_rank);
}

struct RankTraining {
  torch::nn::Sequential net{torch::nn::Linear(64, 128), torch::nn::BatchNorm1d(128),
                            torch::nn::Linear(128, 4)};
  torch::optim::Adam adam{net->parameters(), torch::optim::AdamOptions(1e-3)};
};

// A file that may not grow beyond LIMIT bytes: the system ends rank 0 in the middle of writing.
const Rank kSaves("amp dies while saving", [] {
  start(std::chrono::seconds(10));
  RankTraining training;
  auto [model, optimizer] = initialize(training.net, training.adam, at_level("O2"));
  const parallel::DistributedDataParallel ddp(model);
  for (int step = 1; step < 6; ++step) {
    at("step " + std::to_string(step));
    if (step == 2 && rank() == 0) {
      const auto limit = static_cast<rlim_t>(std::stoll(std::getenv("LIMIT")));
      const rlimit of_files{limit, limit};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &of_files), 0);
    }
    optimizer.zero_grad();
    scale_loss(ddp(torch::randn({4, 64})).square().mean(), optimizer).backward();
    optimizer.step();
    save_checkpoint(checkpoint_of(rank()), model, optimizer,
                    {.entries = {{"step", std::to_string(step)}}});
  }
});

/// The step in a checkpoint; an exception where it is damaged.
int step_of(const std::string& path) {
  RankTraining training;
  auto [model, optimizer] = initialize(training.net, training.adam, at_level("O2"));
  return std::stoi(load_checkpoint(path, model, optimizer).entries.at("step"));
}

TEST(Ranks, ADeathWhileACheckpointIsWrittenDamagesNone) {
  const std::string path = testing::TempDir() + "mezzo_ranks_" + std::to_string(getpid()) + "_";
  const auto train = [&](std::uintmax_t limit) {
    return parallel::testing_ranks::run(
        "amp dies while saving",
        {.environment = {{"CHECKPOINT", path}, {"LIMIT", std::to_string(limit)}}});
  };
  const auto whole = train(1'000'000'000);
  ASSERT_EQ(whole.exit_code, 0) << whole.report;
  const std::uintmax_t size = std::filesystem::file_size(path + "0");
  EXPECT_EQ(step_of(path + "0"), 5);
  ASSERT_GT(size, 50'000U);
  for (const std::uintmax_t limit :
       {std::uintmax_t{0}, std::uintmax_t{100}, size / 2, size - 1000}) {
    const auto result = train(limit);
    EXPECT_EQ(result.ranks[0].end.signal, SIGXFSZ) << result.report;
    // The other rank's error names the dead one, and its own checkpoints are whole.
    EXPECT_EQ(result.ranks[1].end.code, 1) << result.report;
    EXPECT_THAT(result.ranks[1].last_lines, HasSubstr("ranks that did not report: 0"));
    EXPECT_EQ(step_of(path + "0"), 1) << limit;
    EXPECT_EQ(step_of(path + "1"), 2) << limit;
  }
  // Files that the dead left beside them are in nobody's way.
  EXPECT_EQ(train(1'000'000'000).exit_code, 0);
  EXPECT_EQ(step_of(path + "0"), 5);
  for (const auto& file : std::filesystem::directory_iterator(testing::TempDir())) {
    if (file.path().string().starts_with(path)) std::filesystem::remove(file.path());
  }
}

TEST(Ranks, MastersAreEqualToTheLastBit) {
  expect_all_pass("amp begins equal");
}

TEST(Ranks, StepByAveragedGradientsUnderEveryLevel) {
  expect_all_pass("amp averages");
}

}  // namespace
}  // namespace mezzo::amp
