// Split masters on several ranks: they begin, step and skip together, like float ones.
#include <gmock/gmock.h>

#include "amp/training.h"
#include "mezzo/optim.h"
#include "mezzo/parallel.h"
#include "mezzo/state_dict.h"
#include "parallel/several.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;

/// Weights and masters of a rank after six steps, of which the third is skipped.
std::vector<at::Tensor> trained_on_ranks(bool splits, bool defers) {
  // Ranks begin apart; they get rank 0's masters.
  torch::manual_seed(static_cast<std::uint64_t>(1 + rank()));
  TinyNet net;
  optim::FusedAdam inner(net->parameters(), optim::FusedAdamOptions(0.01));
  Options options = at_level("O5");
  options.loss_scale = "dynamic";
  options.defer_unscale = defers;
  options.split_masters = splits;
  auto [model, optimizer] = initialize(net, inner, options);
  const parallel::DistributedDataParallel ddp(model);
  int skipped = 0;
  for (int i = 0; i < 6; ++i) {
    const double factor = i == 2 && rank() == 1 ? kInf : 1;
    const at::Tensor x = inputs() * (1 + i + rank());
    const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(x), targets(x.size(0)));
    scale_loss(loss * factor, optimizer).backward();
    skipped += optimizer.step().applied() ? 0 : 1;
    optimizer.zero_grad();
  }
  EXPECT_EQ(skipped, 1);
  auto values = values_of(*net);
  for (const auto& item : model_state_dict(model)) values.push_back(item.value());
  return values;
}

const Rank kSplitMasters("amp split masters", [] {
  start();
  for (const bool defers : {false, true}) {
    const auto split = trained_on_ranks(true, defers);
    EXPECT_TRUE(same_values(split, trained_on_ranks(false, defers))) << defers;
  }
});

TEST(Ranks, SplitMastersTrainLikeFloatOnes) {
  expect_all_pass("amp split masters");
}

}  // namespace
}  // namespace mezzo::amp
