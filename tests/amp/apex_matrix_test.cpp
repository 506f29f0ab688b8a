// The matrix of Apex's own tests: one to three models, one or two losses and optimizers, a group
// that is added later, an infinity, and every way of clearing gradients, against a replay in
// double.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <deque>
#include <functional>
#include <span>

#include "amp/training.h"

namespace mezzo::amp {
namespace {

constexpr int kSteps = 6;
constexpr int kOverflowAt = 2;
constexpr int kAddsAt = 3;
constexpr double kRate = 0.125;
constexpr int kWays = 8;

struct MatrixCase {
  std::string level;
  std::size_t models, losses, optimizers;
  bool overflows, adds;
  int way;
};

std::string name_of(const MatrixCase& c) {
  return c10::str(c.level, " models ", c.models, " losses ", c.losses, " optimizers ", c.optimizers,
                  c.overflows ? " overflows" : "", c.adds ? " adds" : "", " way ", c.way);
}

/// A training of lines: model m belongs to optimizer m modulo their number.
struct Matrix {
  explicit Matrix(const MatrixCase& wanted) : c(wanted), nets(c.models) {
    std::vector<std::vector<at::Tensor>> owned(c.optimizers);
    for (std::size_t m = 0; m < c.models; ++m) {
      if (!comes_late(m)) owned[m % c.optimizers].push_back(nets[m]->line->weight);
    }
    std::vector<std::reference_wrapper<torch::optim::Optimizer>> refs;
    for (auto& parameters : owned) {
      inner.emplace_back(std::move(parameters), torch::optim::SGDOptions(kRate));
      refs.emplace_back(inner.back());
    }
    Options options = at_level(c.level);
    options.num_losses = static_cast<int>(c.losses);
    options.check_finite = true;
    std::tie(models, optimizers) = initialize(nets, refs, options);
  }
  bool comes_late(std::size_t m) const { return c.adds && m + 1 == c.models; }

  void clear() {
    const auto by_hand = [this](const std::function<void(at::Tensor&)>& act) {
      for (Line& net : nets) {
        for (at::Tensor& p : net->parameters()) act(p);
      }
    };
    const bool to_none = c.way % 2 == 0;
    switch (c.way / 2) {
      case 0:
        for (Optimizer& optimizer : optimizers) optimizer.zero_grad(to_none);
        break;
      case 1:
        for (Model<Line>& model : models) model.zero_grad(to_none);
        break;
      case 2:
        for (Line& net : nets) net->zero_grad(to_none);
        break;
      default:
        by_hand([&](at::Tensor& p) {
          if (to_none) {
            p.mutable_grad().reset();
          } else if (p.grad().defined()) {
            p.mutable_grad().zero_();
          }
        });
    }
  }

  void add() {
    nets.back()->zero_grad();
    optimizers.front().add_param_group(
        torch::optim::OptimizerParamGroup({nets.back()->line->weight}));
  }

  /// Loss l takes every model for l = 0, and all but the first for l = 1, if there are others.
  bool takes(std::size_t l, std::size_t m) const { return l == 0 || m > 0 || c.models == 1; }
  /// An infinity matters where an optimizer holds one of the models that it reaches.
  bool holds_a_model_of_the_last_loss(int step) const {
    for (std::size_t m = 0; m < c.models; ++m) {
      if (takes(c.losses - 1, m) && (!comes_late(m) || step >= kAddsAt)) return true;
    }
    return false;
  }
  static double factor(std::size_t l, std::size_t m) {
    return 0.25 * static_cast<double>(m + 1) * (l == 0 ? 1.0 : -0.5);
  }

  void backward(bool overflows) {
    for (std::size_t l = 0; l < c.losses; ++l) {
      at::Tensor loss = torch::zeros({});
      for (std::size_t m = 0; m < c.models; ++m) {
        if (takes(l, m)) loss = loss + models[m](row()).sum() * factor(l, m);
      }
      // The last loss overflows.
      if (overflows && l + 1 == c.losses) loss = loss * kInf;
      scale_loss(loss, std::span<Optimizer>(optimizers), {.loss_id = static_cast<int>(l)})
          .backward();
    }
  }

  MatrixCase c;
  std::vector<Line> nets;
  std::deque<torch::optim::SGD> inner;
  std::vector<Model<Line>> models;
  std::vector<Optimizer> optimizers;
};

void compare_with_replay(const MatrixCase& c) {
  Matrix training(c);
  std::vector<at::Tensor> expected(c.models, torch::tensor({{1.0, -0.5, 0.25}}, at::kDouble));
  for (int step = 0; step < kSteps; ++step) {
    if (c.adds && step == kAddsAt) training.add();
    training.clear();
    const bool overflows = c.overflows && step == kOverflowAt;
    training.backward(overflows);
    const bool skips = overflows && training.holds_a_model_of_the_last_loss(step);
    for (Optimizer& optimizer : training.optimizers)
      ASSERT_EQ(optimizer.step().applied(), !skips) << name_of(c) << " step " << step;
    if (skips) continue;
    for (std::size_t m = 0; m < c.models; ++m) {
      if (training.comes_late(m) && step < kAddsAt) continue;
      for (std::size_t l = 0; l < c.losses; ++l) {
        if (training.takes(l, m))
          expected[m] = expected[m] - kRate * Matrix::factor(l, m) * row().to(at::kDouble);
      }
    }
  }
  for (std::size_t m = 0; m < c.models; ++m) {
    const at::Tensor weight = training.nets[m]->line->weight.detach();
    const double epsilon = weight.scalar_type() == at::kHalf       ? 0x1p-11
                           : weight.scalar_type() == at::kBFloat16 ? 0x1p-8
                                                                   : 0x1p-20;
    EXPECT_TRUE(torch::allclose(weight.to(at::kDouble), expected[m], epsilon, epsilon))
        << name_of(c) << " model " << m << weight << expected[m];
  }
}

TEST(ApexMatrix, EqualsAReplayInDouble) {
  int cases = 0;
  for (const std::string& level : kLevels) {
    if (level == "O3") continue;  // no masters: its updates are half's
    for (std::size_t models = 1; models <= 3; ++models) {
      for (std::size_t losses = 1; losses <= 2; ++losses) {
        for (std::size_t optimizers = 1; optimizers <= std::min<std::size_t>(models, 2);
             ++optimizers) {
          for (const bool overflows : {false, true}) {
            for (const bool adds : {false, true}) {
              // An optimizer must have a parameter to begin with.
              if (adds && models <= optimizers) continue;
              for (int way = 0; way < kWays; ++way) {
                compare_with_replay({level, models, losses, optimizers, overflows, adds, way});
                ++cases;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 5 * 2 * 2 * kWays * (5 + 3));
}

}  // namespace
}  // namespace mezzo::amp
