// Ranks that find different things in gradients that were equal, and the check that they hold the
// same weights.
#include <gmock/gmock.h>

#include <limits>
#include <stdexcept>

#include "amp/training.h"
#include "mezzo/grad_scaler.h"
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

const std::vector<std::string> kScaledLevels{"O1", "O2", "O3"};

/// A fault of the machine, of rank 1's: the average that all ranks have becomes infinite there.
void spoil(const torch::nn::Module& net) {
  const at::NoGradGuard no_grad;
  if (rank() == 1) net.parameters()[0].grad().flatten()[0].fill_(kInf);
}

/// Do all ranks hold these values?
void expect_same_on_all(const at::Tensor& mine, const std::string& what) {
  const at::Tensor all = parallel::world().all_gather(mine.detach().contiguous());
  for (int other = 1; other < parallel::world_size(); ++other)
    EXPECT_TRUE(torch::equal(all[0], all[other])) << what << '\n' << all;
}

Options checked(const std::string& level, bool deferred) {
  Options options = at_level(level);
  options.defer_unscale = deferred;
  options.check_finite = true;  // at O3, O4 and O5 as well
  return options;
}

/// Five steps; the average of the second and the last is spoilt on rank 1 before the scope is left.
template <typename Inner>
void train_with_fault(const std::string& level, bool deferred, bool bare_clear) {
  const std::string where =
      level + (deferred ? " deferred" : "") + (bare_clear ? " cleared by the network" : "");
  at(where);
  Line net;
  Inner sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, checked(level, deferred));
  const parallel::DistributedDataParallel ddp(model);
  const double first_scale = optimizer.loss_scale();
  for (int step = 0; step < 5; ++step) {
    bare_clear ? net->zero_grad() : optimizer.zero_grad();
    const bool spoils = step == 1 || step == 4;
    {
      auto scaled = scale_loss(ddp(row(1 + rank())).sum(), optimizer);
      scaled.backward();
      if (spoils) spoil(*net);
    }
    const StepResult result = optimizer.step();
    EXPECT_EQ(result.skipped(), spoils) << where << " step " << step;
    if (spoils) {
      EXPECT_THAT(result.reason(), HasSubstr("on rank 1 after the average, and finite on other"))
          << where;
      EXPECT_THAT(result.reason(), HasSubstr("'line.weight'")) << where;
    }
    expect_same_on_all(master_params(optimizer)[0], where);
  }
  const bool is_dynamic = first_scale != 1;
  EXPECT_EQ(optimizer.loss_scale(), is_dynamic ? first_scale / 4 : 1) << where;
  EXPECT_EQ(optimizer.skipped_steps(), 2);
}

const Rank kFaultTogether("amp one rank spoils an average", [] {
  start();
  for (const std::string& level : kLevels) {
    for (const bool bare_clear : {false, true}) {
      train_with_fault<torch::optim::SGD>(level, false, bare_clear);
      train_with_fault<torch::optim::SGD>(level, true, bare_clear);
    }
    if (level == "O3") continue;  // fused optimizers step float or masters
    struct Fused : optim::FusedSGD {
      Fused(std::vector<at::Tensor> parameters, double rate)
          : optim::FusedSGD(std::move(parameters), optim::FusedSGDOptions(rate)) {}
    };
    train_with_fault<Fused>(level, true, false);
  }
});

TEST(Ranks, SkipTogetherWhenAnAverageIsSpoiltOnOneOfThem) {
  expect_all_pass("amp one rank spoils an average");
}

TEST(Ranks, SkipTogetherWhenOneOfFourSpoilsTheAverage) {
  expect_all_pass("amp one rank spoils an average", {.ranks = 4});
}

const Rank kScalerTogether("amp one rank spoils torch.amp's average", [] {
  start();
  for (const bool unscales : {false, true}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    GradScaler scaler({.init_scale = 1024});
    const parallel::DistributedDataParallel ddp(net);
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      scaler.scale(ddp(row(1 + rank())).sum()).backward();
      if (step == 1) spoil(*net);
      if (unscales) scaler.unscale_(sgd);
      const StepResult result = scaler.step(sgd);
      EXPECT_EQ(result.skipped(), step == 1);
      if (step == 1) {
        EXPECT_THAT(result.reason(), HasSubstr("on rank 1 after the average"));
      }
      scaler.update();
      expect_same_on_all(net->line->weight, "step " + std::to_string(step));
    }
    EXPECT_EQ(scaler.get_scale(), 512);
  }
});

TEST(Ranks, GradScalersSkipTogetherWhenAnAverageIsSpoiltOnOneOfThem) {
  expect_all_pass("amp one rank spoils torch.amp's average");
}

const Rank kLeavesTogether("amp an exception after the average", [] {
  start();
  for (const std::string& level : kScaledLevels) {
    for (const bool everybody : {false, true}) {
      at(level + (everybody ? ": all" : ": one"));
      Line net;
      torch::optim::SGD sgd(net->parameters(), 0.125);
      auto [model, optimizer] = initialize(net, sgd, checked(level, false));
      const parallel::DistributedDataParallel ddp(model);
      const double scale = optimizer.loss_scale();
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        const bool throws = step == 1 && (everybody || rank() == 1);
        try {
          auto scaled = scale_loss(ddp(row(1 + rank())).sum(), optimizer);
          scaled.backward();
          if (throws) throw std::runtime_error("a bad batch");
        } catch (const std::runtime_error&) {
          EXPECT_TRUE(throws);
          continue;
        }
        EXPECT_EQ(optimizer.step().skipped(), step == 1) << level;
      }
      expect_same_on_all(master_params(optimizer)[0], level);
      // Where nobody was on its way to a step, nothing is skipped.
      EXPECT_EQ(optimizer.loss_scale(), everybody || scale == 1 ? scale : scale / 2) << level;
    }
  }
});

TEST(Ranks, AnExceptionOnOneOfThemAfterTheAverageMakesTheOthersSkip) {
  expect_all_pass("amp an exception after the average");
}

std::string agreement_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

const Rank kEveryTogether("amp compares weights every other step", [] {
  start();
  for (const std::string& level : kLevels) {
    at(level);
    torch::manual_seed(1);
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    Options options = at_level(level);
    options.expect_equal_every = 2;
    auto [model, optimizer] = initialize(net, sgd, options);
    const parallel::DistributedDataParallel ddp(model);
    const auto step = [&, &optimizer = optimizer] {
      optimizer.zero_grad();
      scale_loss(ddp(inputs() * (1 + rank())).square().mean(), optimizer).backward();
      optimizer.step();
    };
    for (int i = 0; i < 4; ++i) step();
    const torch::NoGradGuard no_grad;
    const at::Tensor wide = master_params(optimizer)[4];  // second.weight
    if (rank() == 1) wide.flatten()[3].add_(0.5);
    {
      const torch::AutoGradMode with_gradients(true);
      step();  // not yet
      EXPECT_THAT(agreement_error(step), HasSubstr("rank 1 differs from rank 0 in 'second.weight'"))
          << level;
    }
    EXPECT_THAT(agreement_error([&optimizer = optimizer] { optimizer.expect_equal_ranks(); }),
                HasSubstr("second.weight"));
    parallel::broadcast_all(master_params(optimizer));
    optimizer.expect_equal_ranks();
    if (rank() == 1 && optimizer.loss_scale() != 1) optimizer.set_loss_scale(64);
    const std::string said =
        agreement_error([&optimizer = optimizer] { optimizer.expect_equal_ranks(); });
    const bool has_scale = level == "O1" || level == "O2";
    EXPECT_THAT(said, HasSubstr(has_scale ? "in 'scale of loss 0'" : "nothing was thrown"));
  }
});

TEST(Ranks, CompareWeightsAndScalesEverySoManySteps) {
  expect_all_pass("amp compares weights every other step");
}

const Rank kMajorityTogether("amp names who is alone", [] {
  start();
  std::vector<std::pair<std::string, at::Tensor>> held;
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kBool})
    held.emplace_back(c10::toString(type), torch::arange(7).to(type));
  held.emplace_back("empty", torch::empty({0}));
  held.emplace_back("large", torch::arange(70000));
  held.emplace_back("transposed", torch::arange(6).reshape({2, 3}).t());
  const std::int64_t before = parallel::world().counts().collectives;
  parallel::expect_equal(held);
  EXPECT_EQ(parallel::world().counts().collectives - before, 1);
  for (auto& [name, tensor] : held) {
    if (tensor.numel() == 0) continue;
    const at::Tensor good = tensor;
    tensor = tensor.clone(at::MemoryFormat::Contiguous);
    if (rank() == 0) tensor.view(-1)[tensor.numel() - 1].fill_(tensor.dtype() == at::kBool ? 0 : 1);
    EXPECT_THAT(agreement_error([&] { parallel::expect_equal(held); }),
                HasSubstr("rank 0 differs from ranks 1, 2 in '" + name + "'"));
    tensor = good;
  }
  if (rank() == 2) held.pop_back();
  EXPECT_THAT(agreement_error([&] { parallel::expect_equal(held); }),
              HasSubstr("rank 2 differs from ranks 0, 1 in the number of tensors"));
});

TEST(Ranks, ExpectEqualNamesTheTensorAndTheRankThatIsAlone) {
  expect_all_pass("amp names who is alone", {.ranks = 3});
}

const Rank kLoopTogether("amp compares weights inside a join", [] {
  start();
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  Options options = at_level("O2");
  options.expect_equal_every = 2;
  auto [model, optimizer] = initialize(net, sgd, options);
  const parallel::DistributedDataParallel ddp(model);
  const auto step = [&, &optimizer = optimizer] {
    optimizer.zero_grad();
    scale_loss(ddp(row(1 + rank())).sum(), optimizer).backward();
    optimizer.step();
  };
  for (const int less : {0, 1}) {
    auto join = ddp.join();
    for (int i = 0; i < (rank() == less ? 3 : 6); ++i) step();
    join.close();
    // All count anew.
    for (int i = 0; i < 3; ++i) step();
  }
  expect_same_on_all(master_params(optimizer)[0], "after two loops");
});

TEST(Ranks, CompareWeightsInsideOfAJoinAmongThoseThatHaveData) {
  expect_all_pass("amp compares weights inside a join");
}

TEST(Options, ExpectEqualEveryIsChecked) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  Options options = at_level("O2");
  options.expect_equal_every = -1;
  EXPECT_THROW(initialize(net, sgd, options), ConfigError);
  options.expect_equal_every = 1;
  options.overflow_group = OverflowGroup::none();
  EXPECT_THROW(initialize(net, sgd, options), ConfigError);
  options = Options::from_flags({{"expect_equal_every", "3"}, {"verbosity", "0"}});
  EXPECT_EQ(options.expect_equal_every, 3);
  auto [model, optimizer] = initialize(net, sgd, options);
  optimizer.expect_equal_ranks();  // a program of one process
}

}  // namespace
}  // namespace mezzo::amp
