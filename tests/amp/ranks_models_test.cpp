// Several networks of one loss, each with a wrapper of its own, against one process.
#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "mezzo/parallel.h"
#include "parallel/several.h"

namespace mezzo::amp {
namespace {

using parallel::rank;
using parallel::testing_ranks::at;
using parallel::testing_ranks::expect_all_pass;
using parallel::testing_ranks::Rank;
using parallel::testing_ranks::start;

torch::nn::Linear layer(std::uint64_t seed, std::int64_t in, std::int64_t out) {
  torch::manual_seed(seed);
  return torch::nn::Linear(in, out);
}

at::Tensor batch(int step) {
  torch::manual_seed(static_cast<std::uint64_t>(50 + step));
  return torch::randn({4 * parallel::world_size(), 3});
}

/// Two layers that are two networks, with an optimizer each.
struct Pair {
  explicit Pair(const Options& options)
      : first(layer(1, 3, 8)),
        second(layer(2, 8, 2)),
        first_sgd(first->parameters(), 0.25),
        second_sgd(second->parameters(), 0.125) {
    auto made = initialize(std::tie(first, second), std::tie(first_sgd, second_sgd), options);
    models.emplace(made.first);
    optimizers.emplace(made.second);
  }
  template <class One, class Other>
  void backward(const One& one, const Other& other, const at::Tensor& x, double factor) {
    auto& [a, b] = *optimizers;
    scale_loss(other(torch::tanh(one(x))).square().mean() * factor, {a, b}).backward();
  }
  void zero_grad() {
    std::get<0>(*optimizers).zero_grad();
    std::get<1>(*optimizers).zero_grad();
  }
  /// Do both skip?
  bool skips() {
    const bool skipped = std::get<0>(*optimizers).step().skipped();
    EXPECT_EQ(std::get<1>(*optimizers).step().skipped(), skipped);
    return skipped;
  }
  std::vector<at::Tensor> masters() const {
    std::vector<at::Tensor> all = master_params(std::get<0>(*optimizers));
    for (const at::Tensor& one : master_params(std::get<1>(*optimizers))) all.push_back(one);
    return all;
  }

  torch::nn::Linear first, second;
  torch::optim::SGD first_sgd, second_sgd;
  std::optional<std::tuple<Model<torch::nn::Linear>, Model<torch::nn::Linear>>> models;
  std::optional<std::tuple<Optimizer, Optimizer>> optimizers;
};

void expect_as_alone(const std::string& level) {
  Options alone = at_level(level);
  alone.overflow_group = OverflowGroup::none();
  Pair together(at_level(level));
  Pair single(alone);
  const parallel::DistributedDataParallel first(std::get<0>(*together.models));
  const parallel::DistributedDataParallel second(std::get<1>(*together.models),
                                                 {.message_size = 4});
  const auto& [one, other] = *single.models;
  const bool overflows = level == "O1" || level == "O2";
  for (int step = 0; step < 5; ++step) {
    at(level + " step " + std::to_string(step));
    const at::Tensor all = batch(step);
    const at::Tensor own = all.narrow(0, 4 * rank(), 4);
    const bool breaks = step == 2 && overflows;
    const double infinite = std::numeric_limits<double>::infinity();
    together.zero_grad();
    single.zero_grad();
    if (step == 3) {
      const auto no_first = first.no_sync();
      const auto no_second = second.no_sync();
      together.backward(first, second, own, 1);
      single.backward(one, other, all, 1);
    }
    together.backward(first, second, own, breaks && rank() == 1 ? infinite : 1);
    single.backward(one, other, all, breaks ? infinite : 1);
    EXPECT_EQ(together.skips(), breaks);
    EXPECT_EQ(single.skips(), breaks);
    const std::vector<at::Tensor> expected = single.masters();
    const std::vector<at::Tensor> got = together.masters();
    const double unit = level == "O0" ? 1e-6 : level == "O5" ? 0x1p-7 : 0x1p-10;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE((got[i] - expected[i]).abs().max().item<double>(), 2 * unit) << level << ' ' << i;
      const at::Tensor of_all = parallel::world().all_gather(got[i].detach().contiguous());
      EXPECT_TRUE(torch::equal(of_all[0], of_all[1])) << level << ' ' << i;
    }
  }
}

const Rank kModels("amp two models of one loss", [] {
  start();
  for (const std::string level : {"O0", "O1", "O2", "O5"}) expect_as_alone(level);
});

TEST(Ranks, TwoWrappersOfOneLossGiveOneProcessesWeights) {
  expect_all_pass("amp two models of one loss");
}

}  // namespace
}  // namespace mezzo::amp
