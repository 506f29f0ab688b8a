// Random sequences of everything that a training does, and what must hold after each.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <random>
#include <sstream>

#include "amp/optimizer_state.h"
#include "amp/training.h"

namespace mezzo::amp {
namespace {

/// Bytes of all tensors on this thread that were made and not yet freed since it was.
class LiveBytes {
 public:
  std::int64_t now() const { return reporter_->bytes; }

 private:
  struct Reporter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*block*/, std::int64_t size, std::size_t /*allocated*/,
                           std::size_t /*reserved*/, c10::Device /*device*/) override {
      bytes += size;
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t bytes = 0;
  };
  std::shared_ptr<Reporter> reporter_ = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, reporter_};
};

/// Rows along every axis. Where all of them differ in one direction only, a step may bring a
/// feature to where it hardly varies, and batch norm then multiplies its gradient by up to 300.
at::Tensor spread_inputs() {
  return torch::cat({torch::eye(4), -torch::eye(4)});
}

/// A training that draws what it does next.
class Random {
 public:
  Random(const std::string& level, unsigned seed)
      : draw_(seed),
        adam_(net_->first->parameters(), torch::optim::AdamOptions(0.01).eps(1e-4)),
        handles_(initialize(net_, adam_, options(level))) {}

  void act() {
    switch (std::uniform_int_distribution<int>(0, 13)(draw_)) {
      case 0:
        return backward({});
      case 1:
        return backward({.loss_id = 1});
      case 2:
        return backward({.delay_unscale = true});
      case 3:
        return overflow();
      case 4:
        return step();
      case 5:
        return step();
      case 6:
        return zero();
      case 7:
        return fail();
      case 8:
        return freeze();
      case 9:
        return add_group();
      case 10:
        return clip();
      case 11:
        return unchecked();
      case 12:
        return save_and_load_checkpoint();
      default:
        return save_and_load();
    }
  }

  void check(const std::string& where) {
    for (const detail::Slot& slot : optimizer().shared()->slots().all()) {
      ASSERT_FALSE(slot.stash.defined()) << where;
      if (slot.has_master()) {
        ASSERT_TRUE(torch::equal(slot.weight, slot.master.to(slot.weight.scalar_type()))) << where;
        if (!optimizer().shared()->scope().still_scaled()) {
          ASSERT_TRUE(!slot.weight.grad().defined() ||
                      slot.weight.grad().is_same(slot.master.grad()))
              << where << ": a scaled gradient outside of a scope";
        }
      }
      ASSERT_TRUE(slot.master.isfinite().all().item<bool>()) << where;
      const at::Tensor& grad = slot.master.grad();
      if (!scaled_ && !overflowed_ && grad.defined()) {
        // Each backward pass adds less than 4, and scales are much larger than that.
        ASSERT_LE(grad.abs().max().item<float>(), 4.0F * static_cast<float>(passes_)) << where;
      }
    }
    ASSERT_EQ(optimizer().applied_steps() + optimizer().skipped_steps() + optimizer().empty_steps(),
              steps_)
        << where;
  }

  /// Brings it to where nothing is under way, whatever was drawn: all parameters are trained, a
  /// step was just applied, and there are no gradients.
  void come_to_rest() {
    net_->first->bias.requires_grad_(true);
    add_group();
    optimizer().zero_grad();
    scaled_ = overflowed_ = false;
    backward({});
    step();
    optimizer().zero_grad();
    passes_ = 0;
  }

 private:
  static Options options(const std::string& level) {
    Options result = at_level(level);
    result.num_losses = 2;
    result.loss_scale = "dynamic";
    return result;
  }
  Model<TinyNet>& model() { return handles_.first; }
  Optimizer& optimizer() { return handles_.second; }

  void backward(const ScaleLossOptions& options) {
    scale_loss(loss_of(model(), spread_inputs()), optimizer(), options).backward();
    had_backward_ = true;
    scaled_ = options.delay_unscale;
    ++passes_;
  }
  void overflow() {
    scale_loss(loss_of(model(), spread_inputs()) * std::numeric_limits<double>::infinity(),
               optimizer())
        .backward();
    had_backward_ = true;
    scaled_ = false;
    overflowed_ = true;
  }
  /// A pass whose overflow is not looked for: neither scale nor counter moves.
  void unchecked() {
    const StateDict before = state_dict(optimizer());
    backward({.delay_overflow_check = true});
    ASSERT_EQ(state_dict(optimizer()), before);
  }
  void step() {
    if (!had_backward_ || scaled_) return;
    const auto moments = moments_of();
    const bool skipped = optimizer().step().skipped();
    ++steps_;
    ASSERT_EQ(skipped, overflowed_);
    ASSERT_TRUE(!skipped || same_values(moments, moments_of()));
    overflowed_ = false;
  }
  void clip() {
    if (scaled_) return;
    torch::nn::utils::clip_grad_norm_(master_params(optimizer()), 0.5);
    for (const at::Tensor& master : master_params(optimizer())) {
      // NaN where the pass before overflowed.
      if (!overflowed_ && master.grad().defined()) {
        ASSERT_LE(master.grad().norm().item<double>(), 0.501);
      }
    }
  }
  void zero() {
    optimizer().zero_grad(std::bernoulli_distribution(0.5)(draw_));
    scaled_ = false;
    overflowed_ = false;
    passes_ = 0;
  }
  void fail() {
    const double before = optimizer().loss_scale();
    const auto throws = [this] {
      ScaledLoss scaled = scale_loss(
          loss_of(model(), spread_inputs()) * std::numeric_limits<double>::infinity(), optimizer());
      scaled.backward();
      throw std::runtime_error("drawn");
    };
    ASSERT_THROW(throws(), std::runtime_error);
    ASSERT_EQ(optimizer().loss_scale(), before);
  }
  void freeze() {
    at::Tensor bias = net_->first->bias;
    bias.requires_grad_(!bias.requires_grad());
  }
  void add_group() {
    if (added_) return;
    added_ = true;
    optimizer().add_param_group(torch::optim::OptimizerParamGroup(net_->second->parameters()));
  }
  void save_and_load() {
    std::stringstream model_file;
    std::stringstream optimizer_file;
    torch::save(model(), model_file);
    torch::save(optimizer(), optimizer_file);
    const auto scales = state_dict(optimizer());
    torch::load(optimizer(), optimizer_file);
    torch::load(model(), model_file);
    load_state_dict(optimizer(), scales);
  }
  /// All that a training is: weights, masters, their gradients, moments.
  std::vector<at::Tensor> everything() {
    std::vector<at::Tensor> all = values_of(*net_);
    for (const detail::Slot& slot : optimizer().shared()->slots().all()) {
      for (const at::Tensor& each :
           {slot.master.detach(), slot.master.grad(), slot.weight.grad()}) {
        all.push_back(each.defined() ? each.clone() : at::Tensor(torch::empty({0})));
      }
    }
    return all;
  }
  void save_and_load_checkpoint() {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("mezzo_property_" + std::to_string(::getpid())))
            .string();
    optimizer().shared()->slots().sync();
    const auto before = everything();
    const auto moments = moments_of();
    const StateDict scales = state_dict(optimizer());
    save_checkpoint(path, model(), optimizer());
    {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& parameter : net_->parameters()) parameter.zero_();
    }
    optimizer().zero_grad();
    optimizer().set_loss_scale(2);
    load_checkpoint(path, model(), optimizer());
    std::filesystem::remove(path);
    const auto after = everything();
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_EQ(after[i].scalar_type(), before[i].scalar_type());
      // Overflowed gradients may be NaN.
      ASSERT_TRUE(torch::allclose(after[i], before[i], 0, 0, /*equal_nan=*/true)) << i;
    }
    ASSERT_TRUE(same_values(moments_of(), moments));
    ASSERT_EQ(state_dict(optimizer()), scales);
  }
  std::vector<at::Tensor> moments_of() {
    std::vector<at::Tensor> moments;
    for (const at::Tensor& master : master_params(optimizer())) {
      const auto state = adam_.state().find(master.unsafeGetTensorImpl());
      if (state == adam_.state().end()) continue;
      const auto& adam = static_cast<torch::optim::AdamParamState&>(*state->second);
      moments.push_back(torch::tensor(adam.step()));
      moments.push_back(adam.exp_avg().clone());
    }
    return moments;
  }

  std::mt19937 draw_;
  TinyNet net_;
  torch::optim::Adam adam_;
  std::pair<Model<TinyNet>, Optimizer> handles_;
  bool had_backward_ = false;
  bool scaled_ = false;
  bool overflowed_ = false;
  bool added_ = false;
  std::int64_t steps_ = 0;
  int passes_ = 0;  // backward passes since gradients were cleared
};

void expect_invariants(unsigned seeds) {
  for (const std::string& level : kLevels) {
    for (unsigned seed = 0; seed < seeds; ++seed) {
      torch::manual_seed(seed);
      Random training(level, seed);
      for (int action = 0; action < 40; ++action) {
        const std::string where =
            level + " seed " + std::to_string(seed) + " action " + std::to_string(action);
        SCOPED_TRACE(where);
        training.act();
        training.check(where);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Property, RandomSequencesKeepTheInvariants) {
  expect_invariants(6);
}

TEST(PropertySlow, ManyRandomSequencesKeepTheInvariants) {
  expect_invariants(200);
}

TEST(Property, NoMemoryGrowsWhateverIsDrawn) {
  for (const std::string& level : kLevels) {
    const LiveBytes live;
    torch::manual_seed(1);
    Random training(level, 1);
    std::int64_t before = 0;
    for (int round = 0; round < 6; ++round) {
      for (int action = 0; action < 40; ++action) training.act();
      if (testing::Test::HasFatalFailure()) return;
      training.come_to_rest();
      // The first round makes what is kept: optimizer state, masters, copies of weights.
      if (round == 0) before = live.now();
      EXPECT_EQ(live.now(), before) << level << " round " << round;
    }
  }
}

}  // namespace
}  // namespace mezzo::amp
