// Twenty steps in every combination of levels, options and overflows, against an independent replay
// in double.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <set>

#include "amp/training.h"

namespace mezzo::amp {
namespace {

constexpr int kSteps = 20;
constexpr int kGrowthInterval = 6;

/// Gradients that do not depend on the weights, so that low precision computes them exactly: `line`
/// is low where the level says so, `norm` stays float where batch norms do.
struct PartsImpl : torch::nn::Module {
  PartsImpl()
      : line(
            register_module("line", torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)))),
        norm(register_module(
            "norm",
            torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(2).track_running_stats(false)))) {
    const torch::NoGradGuard no_grad;
    line->weight.copy_(torch::tensor({{0.5F, -0.25F, 0.75F}}));
    norm->weight.fill_(1);
  }
  /// The two parts of a loss; each is multiplied by its factor.
  at::Tensor forward(const at::Tensor& x, double line_factor, double norm_factor) {
    const at::Tensor of_norm = (norm->weight * 0.25 + norm->bias * 0.5).sum().to(at::kFloat);
    return line(x).to(at::kFloat).sum() * line_factor + of_norm * norm_factor;
  }
  torch::nn::Linear line;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Parts);

/// One combination; each number picks a value of its axis.
using Case = std::array<int, 9>;
enum Axis { kLevel, kNorms, kScale, kModels, kOptimizers, kLosses, kWhen, kWhich, kWhere };
constexpr Case kSizes{6, 3, 4, 2, 2, 2, 3, 2, 2};

std::string name_of(const Case& c) {
  std::string name = kLevels[static_cast<std::size_t>(c[kLevel])];
  for (std::size_t i = 1; i < c.size(); ++i) name += " " + std::to_string(c[i]);
  return name;
}

bool is_valid(const Case& c) {
  const bool casts_operators = c[kLevel] == 1 || c[kLevel] == 4;
  if (casts_operators && c[kNorms] != 0) return false;
  const bool dynamic = c[kScale] == 3 || (c[kScale] == 0 && (c[kLevel] == 1 || c[kLevel] == 2));
  const bool checked = dynamic || c[kScale] == 2;
  if (c[kWhen] != 0 && !checked) return false;  // nothing skips
  // There is one way not to overflow.
  return c[kWhen] != 0 || (c[kWhich] == 0 && c[kWhere] == 0);
}

/// SGD with momentum in double over the same gradients, with the scaler's rules where the scale is
/// dynamic.
class Replay {
 public:
  void add(const at::Tensor& weight) {
    values_.push_back(weight.detach().to(at::kDouble).clone());
    momenta_.push_back(torch::zeros_like(values_.back()));
    gradients_.push_back(torch::zeros_like(values_.back()));
  }
  void accumulate(std::size_t place, const at::Tensor& gradient) { gradients_[place] += gradient; }
  void step(const std::vector<std::size_t>& places, bool skip) {
    for (const std::size_t i : places) {
      if (!skip) {
        momenta_[i] = momenta_[i] * 0.5 + gradients_[i];
        values_[i] -= 0.125 * momenta_[i];
      }
      gradients_[i].zero_();
    }
  }
  const at::Tensor& value(std::size_t place) const { return values_[place]; }

 private:
  std::vector<at::Tensor> values_, momenta_, gradients_;
};

/// The rules of a loss's scale, once more.
struct ReplayedScale {
  double scale;
  bool dynamic;
  int clean = 0;

  void leave(bool overflowed) {
    if (!dynamic) return;
    clean = overflowed ? 0 : clean + 1;
    if (overflowed) scale /= 2;
    if (clean == kGrowthInterval) {
      scale *= 2;
      clean = 0;
    }
  }
};

Options options_of(const Case& c) {
  Options options = at_level(kLevels[static_cast<std::size_t>(c[kLevel])]);
  if (c[kNorms] != 0) options.keep_batchnorm_fp32 = c[kNorms] == 1;
  if (c[kScale] == 1) options.loss_scale = 1;
  if (c[kScale] == 2) options.loss_scale = 128;
  if (c[kScale] == 3) options.loss_scale = "dynamic";
  options.num_losses = c[kLosses] + 1;
  options.growth_interval = kGrowthInterval;
  return options;
}

void play(const Case& c) {
  const int num_models = c[kModels] + 1;
  const int num_losses = c[kLosses] + 1;
  std::vector<Parts> nets;
  for (int i = 0; i < num_models; ++i) nets.emplace_back();

  // One optimizer: all parameters. Two: the lines, and the norms.
  Replay replay;
  std::vector<std::vector<at::Tensor>> groups(static_cast<std::size_t>(c[kOptimizers] + 1));
  std::vector<std::vector<std::size_t>> places(groups.size());
  std::size_t place = 0;
  for (const Parts& net : nets) {
    for (const at::Tensor& weight : {net->line->weight, net->norm->weight, net->norm->bias}) {
      const std::size_t owner = groups.size() == 1 || weight.is_same(net->line->weight) ? 0 : 1;
      groups[owner].push_back(weight);
      places[owner].push_back(place++);
      replay.add(weight);
    }
  }
  std::vector<std::unique_ptr<torch::optim::SGD>> inner;
  std::vector<std::reference_wrapper<torch::optim::Optimizer>> refs;
  for (auto& group : groups) {
    inner.push_back(
        std::make_unique<torch::optim::SGD>(group, torch::optim::SGDOptions(0.125).momentum(0.5)));
    refs.emplace_back(*inner.back());
  }
  const Options options = options_of(c);
  auto [models, optimizers] = initialize(nets, refs, options);

  const bool dynamic = optimizers[0].properties().loss_scale.is_dynamic();
  std::vector<ReplayedScale> scales(static_cast<std::size_t>(num_losses),
                                    {optimizers[0].loss_scale(), dynamic});
  // The second backward pass of a step is that of the second loss, or the only loss's second.
  const int num_passes = std::max(num_losses, c[kWhich] + 1);
  int skipped = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (auto& optimizer : optimizers) optimizer.zero_grad();
    bool skip = false;
    for (int pass = 0; pass < num_passes; ++pass) {
      const int loss = std::min(pass, num_losses - 1);
      const bool overflows =
          c[kWhen] != 0 && step == (c[kWhen] == 1 ? 0 : kSteps / 2) && pass == c[kWhich];
      const at::Tensor x =
          torch::tensor({{0.5F, -1.0F, 0.25F * static_cast<float>(1 + (step + pass) % 3)}});
      at::Tensor sum = torch::zeros({});
      for (int i = 0; i < num_models; ++i) {
        const double line_factor = overflows && c[kWhere] == 0 ? kInf : 1.0;
        const double norm_factor = overflows && c[kWhere] == 1 ? kInf : 1.0;
        sum = sum + models[static_cast<std::size_t>(i)](x, line_factor, norm_factor);
        const auto first = static_cast<std::size_t>(3 * i);
        replay.accumulate(first, x.to(at::kDouble));
        replay.accumulate(first + 1, torch::full({2}, 0.25, at::kDouble));
        replay.accumulate(first + 2, torch::full({2}, 0.5, at::kDouble));
      }
      scale_loss(sum, std::span<Optimizer>(optimizers), {.loss_id = loss}).backward();
      scales[static_cast<std::size_t>(loss)].leave(overflows);
      skip = skip || overflows;
    }
    skipped += skip ? 1 : 0;
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      ASSERT_EQ(optimizers[i].step().skipped(), skip) << name_of(c) << " step " << step;
      replay.step(places[i], skip);
    }
  }

  for (int loss = 0; loss < num_losses; ++loss) {
    EXPECT_EQ(optimizers[0].loss_scale(loss), scales[static_cast<std::size_t>(loss)].scale)
        << name_of(c);
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    EXPECT_EQ(optimizers[i].skipped_steps(), skipped) << name_of(c);
    const auto masters = master_params(optimizers[i]);
    for (std::size_t k = 0; k < masters.size(); ++k) {
      const bool steps_low = masters[k].scalar_type() != at::kFloat;
      // Float keeps 24 bits; where the low type itself is stepped, each step rounds weight and
      // momentum.
      const double tolerance = steps_low ? 0.05 : 1e-5;
      const at::Tensor expected = replay.value(places[i][k]);
      EXPECT_TRUE(torch::allclose(masters[k].to(at::kDouble), expected, tolerance, tolerance))
          << name_of(c) << "\n"
          << masters[k] << "\n"
          << expected;
      EXPECT_TRUE(torch::equal(groups[i][k], masters[k].to(groups[i][k].scalar_type())))
          << name_of(c);
    }
  }
}

std::vector<Case> all_combinations() {
  std::vector<Case> cases;
  Case c{};
  for (;;) {
    if (is_valid(c)) cases.push_back(c);
    std::size_t axis = 0;
    while (axis < c.size() && ++c[axis] == kSizes[axis]) c[axis++] = 0;
    if (axis == c.size()) return cases;
  }
}

/// A part of the cases in which every pair of values that occurs at all occurs.
std::vector<Case> pairwise(const std::vector<Case>& cases) {
  using Pair = std::array<int, 4>;
  const auto pairs_of = [](const Case& c) {
    std::vector<Pair> pairs;
    for (int a = 0; a < 9; ++a) {
      for (int b = a + 1; b < 9; ++b)
        pairs.push_back({a, c[static_cast<std::size_t>(a)], b, c[static_cast<std::size_t>(b)]});
    }
    return pairs;
  };
  std::set<Pair> open;
  for (const Case& c : cases) {
    for (const Pair& pair : pairs_of(c)) open.insert(pair);
  }
  std::vector<Case> chosen;
  while (!open.empty()) {
    const Case* best = nullptr;
    std::size_t most = 0;
    for (const Case& c : cases) {
      std::size_t news = 0;
      for (const Pair& pair : pairs_of(c)) news += open.count(pair);
      if (news > most) {
        most = news;
        best = &c;
      }
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

TEST(CrossProduct, EveryPairOfOptionsFollowsTheReplay) {
  const std::vector<Case> chosen = pairwise(all_combinations());
  EXPECT_GT(chosen.size(), 18U);
  for (const Case& c : chosen) play(c);
}

/// Minutes: under the label "slow" alone.
TEST(CrossProductSlow, EveryCombinationFollowsTheReplay) {
  for (const Case& c : all_combinations()) play(c);
}

}  // namespace
}  // namespace mezzo::amp
