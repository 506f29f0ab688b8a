// watch(): the numbers against double references that other means gave, when it looks, and that
// training is the same without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "mezzo/amp.h"
#include "mezzo/insight.h"
#include "mezzo/optim.h"

namespace mezzo::insight {
namespace {

using report::Magnitudes;
using report::Watched;

struct WatchedNetImpl : torch::nn::Module {
  WatchedNetImpl() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    second = register_module("second", torch::nn::Linear(8, 2));
    gain = register_parameter("gain", torch::ones({2}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(drop(torch::relu(norm(first(x))))) * gain;
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
  at::Tensor gain;
};
TORCH_MODULE(WatchedNet);

/// Keeps the watched steps.
class Kept final : public report::Sink {
 public:
  void write(const report::Event& event) override {
    steps.push_back(std::get<report::StepWatched>(event));
  }
  std::vector<report::StepWatched> steps;
};

std::unique_ptr<torch::optim::Optimizer> an_optimizer(WatchedNet& net, bool fused) {
  if (fused)
    return std::make_unique<optim::FusedAdam>(net->parameters(), optim::FusedAdamOptions(1e-2));
  return std::make_unique<torch::optim::SGD>(net->parameters(),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

const Watched& row_named(const report::StepWatched& step, const std::string& parameter) {
  for (const Watched& row : step.rows) {
    if (row.parameter == parameter) return row;
  }
  throw std::runtime_error("no row " + parameter);
}

/// By operators in double.
void expect_magnitudes(const Magnitudes& seen, const at::Tensor& values, const std::string& type,
                       const std::string& which) {
  const DTypeRow& row = row_of(*parse_dtype(type));
  const at::Tensor v = values.detach().to(at::kDouble).abs();
  const auto share = [&](const at::Tensor& mask) {
    return mask.to(at::kDouble).mean().item<double>();
  };
  EXPECT_EQ(seen.type, type) << which;
  EXPECT_EQ(seen.count, v.numel()) << which;
  const double norm = v.norm().item<double>();
  EXPECT_NEAR(seen.norm, norm, 1e-12 * norm) << which;
  EXPECT_EQ(seen.largest, v.max().item<double>()) << which;
  const at::Tensor nonzero = v.masked_select(v > 0);
  EXPECT_EQ(seen.smallest, nonzero.numel() == 0 ? 0 : nonzero.min().item<double>()) << which;
  EXPECT_EQ(seen.zeros, share(v == 0)) << which;
  EXPECT_EQ(seen.subnormals, share((v > 0).logical_and(v < row.smallest_normal))) << which;
  EXPECT_EQ(seen.saturated, share(v >= row.largest)) << which;
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < seen.exponents.size(); ++i) {
    const double low = std::ldexp(1.0, seen.first_exponent + static_cast<int>(i));
    EXPECT_EQ(seen.exponents[i], (v >= low).logical_and(v < 2 * low).sum().item<std::int64_t>())
        << which << " from " << low;
    counted += seen.exponents[i];
  }
  EXPECT_EQ(counted, nonzero.numel()) << which;
}

at::Tensor a_batch(int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  return torch::randn({6, 4});
}

TEST(Watch, GivesTheNumbersOfWeightsGradientsAndUpdates) {
  const std::map<std::string, std::string> type_of_level{{"O0", "float32"},  {"O1", "float16"},
                                                         {"O2", "float16"},  {"O3", "float16"},
                                                         {"O4", "bfloat16"}, {"O5", "bfloat16"}};
  for (const auto& [level, type] : type_of_level) {
    for (const bool fused : {false, true}) {
      const std::string at = level + (fused ? " fused " : " ");
      torch::manual_seed(3);
      WatchedNet net;
      const auto inner = an_optimizer(net, fused);
      auto [model, optimizer] = amp::initialize(net, *inner,
                                                {.opt_level = level,
                                                 .loss_scale = 256.0,
                                                 .verbosity = 0,
                                                 .defer_unscale = fused,
                                                 .check_finite = true});
      // Gradients as hooks of tensors see them.
      std::map<std::string, at::Tensor> flowed;
      for (const auto& item : net->named_parameters()) {
        item.value().register_hook(
            [&, name = item.key()](const at::Tensor& g) { flowed[name] = g.detach().clone(); });
      }
      Kept sink;
      Watch watch = insight::watch(model, optimizer, sink, {.every = 2});
      std::vector<at::Tensor> before;
      for (int i = 1; i <= 2; ++i) {
        optimizer.zero_grad();
        amp::scale_loss(model(a_batch(i)).pow(2).sum(), optimizer).backward();
        before.clear();
        for (const at::Tensor& each : amp::master_params(optimizer))
          before.push_back(each.detach().clone());
        ASSERT_TRUE(optimizer.step().applied()) << at;
        watch.step();
      }
      ASSERT_EQ(sink.steps.size(), 1U) << at;
      const report::StepWatched& step = sink.steps.front();
      EXPECT_EQ(step.step, 2);
      EXPECT_EQ(step.scale, 256);
      EXPECT_FALSE(step.skipped);
      const std::vector<at::Tensor> after = amp::master_params(optimizer);
      std::size_t i = 0;
      for (const auto& item : net->named_parameters()) {
        const std::string which = at + item.key();
        const Watched& row = row_named(step, item.key());
        const bool of_norm = item.key().starts_with("norm.");
        const bool stays_float = of_norm && item.value().scalar_type() == torch::kFloat &&
                                 (level == "O2" || level == "O5");
        const std::string range = stays_float ? "float32" : type;
        expect_magnitudes(row.weights, item.value(), range, which + " weights");
        expect_magnitudes(row.gradients, flowed[item.key()], range, which + " gradients");
        const at::Tensor old = before[i].to(at::kDouble);
        const at::Tensor moved = (after[i].to(at::kFloat) - before[i].to(at::kFloat));
        const std::string stepped = after[i].scalar_type() == at::kFloat ? "float32" : type;
        expect_magnitudes(row.updates, moved, stepped, which + " updates");
        const double ratio = (moved.to(at::kDouble).norm() / old.norm()).item<double>();
        if (std::isnan(ratio)) {
          EXPECT_TRUE(std::isnan(row.update_ratio)) << which;
        } else if (std::isfinite(ratio)) {
          EXPECT_NEAR(row.update_ratio, ratio, 1e-9 * ratio) << which;
        }
        ++i;
      }
    }
  }
}

TEST(Watch, AddsUpModulesBeforeTheirParameters) {
  torch::manual_seed(3);
  WatchedNet net;
  torch::optim::SGD sgd(net->parameters(), 0.05);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  Kept sink;
  Watch watch = insight::watch(model, optimizer, sink, {.every = 1});
  amp::scale_loss(model(a_batch(1)).sum(), optimizer).backward();
  optimizer.step();
  watch.step();
  std::vector<std::pair<std::string, std::string>> names;
  for (const Watched& row : sink.steps.at(0).rows) names.emplace_back(row.module, row.parameter);
  using Names = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(names, (Names{{"gain", ""},
                          {"gain", "gain"},
                          {"first", ""},
                          {"first", "first.weight"},
                          {"first", "first.bias"},
                          {"norm", ""},
                          {"norm", "norm.weight"},
                          {"norm", "norm.bias"},
                          {"second", ""},
                          {"second", "second.weight"},
                          {"second", "second.bias"}}));
  const auto& rows = sink.steps[0].rows;
  EXPECT_EQ(rows[2].gradients.count, 40);
  EXPECT_NEAR(rows[2].gradients.norm, std::hypot(rows[3].gradients.norm, rows[4].gradients.norm),
              1e-9);
  EXPECT_EQ(rows[2].weights.largest, std::max(rows[3].weights.largest, rows[4].weights.largest));
}

bool is_hooked(const at::Tensor& weight) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(weight);
  return accumulator != nullptr && !accumulator->post_hooks().empty();
}

TEST(Watch, LooksAtEveryNthStepAndIsNotThereBetween) {
  WatchedNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  Kept sink;
  std::optional<Watch> watch = insight::watch(model, optimizer, sink, {.every = 3});
  for (int step = 1; step <= 10; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = model(a_batch(step)).sum();
    EXPECT_EQ(is_hooked(net->first->weight), step % 3 == 0) << step;
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
    watch->step();
    EXPECT_EQ(sink.steps.size(), static_cast<std::size_t>(step / 3));
  }
  EXPECT_EQ(sink.steps.at(2).step, 9);
  for (int step = 11; step <= 11; ++step) watch->step();  // the next one would be watched
  const at::Tensor loss = model(a_batch(1)).sum();
  EXPECT_TRUE(is_hooked(net->first->weight));
  watch.reset();
  EXPECT_FALSE(is_hooked(net->first->weight));
  EXPECT_EQ(sink.steps.size(), 3U);
}

TEST(Watch, ASkippedStepShowsItsGradientsAndNoUpdate) {
  WatchedNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .init_loss_scale = 8388608, .verbosity = 0});
  Kept sink;
  Watch watch = insight::watch(model, optimizer, sink, {.every = 1});
  amp::scale_loss(model(a_batch(1)).sum() * 1e6, optimizer).backward();
  ASSERT_TRUE(optimizer.step().skipped());
  watch.step();
  const report::StepWatched& step = sink.steps.at(0);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.scale, 8388608);
  const Watched& row = row_named(step, "second.weight");
  EXPECT_GT(row.gradients.saturated + row.gradients.nans, 0);
  EXPECT_EQ(row.updates.zeros, 1);
  EXPECT_EQ(row.update_ratio, 0);
}

TEST(Watch, WatchesWithoutMixedPrecisionToo) {
  WatchedNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.enabled = false});
  Kept sink;
  Watch watch = insight::watch(model, optimizer, sink, {.every = 1});
  amp::scale_loss(model(a_batch(1)).sum(), optimizer).backward();
  optimizer.step();
  watch.step();
  const Watched& row = row_named(sink.steps.at(0), "first.weight");
  EXPECT_EQ(row.gradients.type, "float32");
  EXPECT_GT(row.updates.norm, 0);
  expect_magnitudes(row.gradients, net->first->weight.grad(), "float32", "first.weight");
}

/// Everything that training moves, after twelve steps of which some overflow.
std::vector<at::Tensor> trained_state(const std::string& level, bool fused, bool watches) {
  torch::manual_seed(3);
  WatchedNet net;
  const auto inner = an_optimizer(net, fused);
  auto [model, optimizer] = amp::initialize(net, *inner,
                                            {.opt_level = level,
                                             .loss_scale = "dynamic",
                                             .init_loss_scale = 8388608,
                                             .growth_interval = 3,
                                             .verbosity = 0,
                                             .defer_unscale = fused,
                                             .check_finite = true});
  Kept sink;
  std::optional<Watch> watch;
  if (watches) watch = insight::watch(model, optimizer, sink, {.every = 2});
  for (int i = 0; i < 12; ++i) {
    const double factor = i == 5 ? std::numeric_limits<double>::infinity() : 1.0;
    optimizer.zero_grad();
    for (int part = 0; part < 2; ++part) {
      const at::Tensor x = torch::randn({6, 4}) * factor;
      amp::scale_loss(model(x).pow(2).sum() / 2, optimizer).backward();
    }
    optimizer.step();
    if (watch) watch->step();
  }
  EXPECT_EQ(sink.steps.size(), watches ? 6U : 0U);
  std::vector<at::Tensor> all{
      torch::rand({2}), torch::full({1}, optimizer.loss_scale(), at::kDouble),
      torch::full({1}, optimizer.skipped_steps()), torch::full({1}, optimizer.applied_steps())};
  for (const auto& item : amp::model_state_dict(model)) all.push_back(item.value());
  for (const at::Tensor& master : amp::master_params(optimizer)) all.push_back(master.clone());
  for (const at::Tensor& parameter : net->parameters()) {
    all.push_back(parameter.detach().clone());
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::zeros({}));
  }
  return all;
}

TEST(Watch, LeavesTrainingAloneToTheBit) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    for (const bool fused : {false, true}) {
      const auto without = trained_state(level, fused, false);
      const auto with = trained_state(level, fused, true);
      ASSERT_EQ(with.size(), without.size());
      for (std::size_t i = 0; i < with.size(); ++i) {
        EXPECT_TRUE(at::allclose(with[i], without[i], 0, 0, /*equal_nan=*/true))
            << level << (fused ? " fused" : "") << " tensor " << i;
      }
    }
  }
}

/// Kinds of findings of a training whose loss is that small.
std::vector<std::string> diagnosed(const amp::Options& options, double factor) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
                            torch::nn::Tanh(), torch::nn::Linear(8, 2));
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, options);
  Kept kept;
  Watch watch = insight::watch(model, optimizer, kept, {.every = 1});
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    amp::scale_loss(model(a_batch(step)).pow(2).mean() * factor, optimizer).backward();
    optimizer.step();
    watch.step();
  }
  report::Report all;
  all.runs.push_back({.name = options.opt_level, .watched = kept.steps});
  std::vector<std::string> kinds;
  for (const Finding& finding : diagnose(all)) kinds.push_back(finding.kind);
  return kinds;
}

TEST(Watch, ShowsTheDoctorGradientsThatVanishBelowHalf) {
  for (amp::Options options : {amp::Options{.opt_level = "O1"}, amp::Options{.opt_level = "O2"},
                               amp::Options{.opt_level = "O2", .master_weights = false},
                               amp::Options{.opt_level = "O3"}}) {
    options.verbosity = 0;
    for (const double scale : {1.0, 16.0}) {
      options.loss_scale = scale;
      for (const double factor : {1e-4, 1e-6, 1e-7, 1e-8, 1e-9, 1e-12}) {
        EXPECT_THAT(diagnosed(options, factor / scale), testing::ElementsAre("vanishing"))
            << options.opt_level << ", scale " << scale << ", factor " << factor;
      }
      EXPECT_THAT(diagnosed(options, 100), testing::IsEmpty()) << options.opt_level << scale;
    }
  }
  for (const std::string level : {"O4", "O5", "O0"}) {
    const amp::Options options{.opt_level = level, .loss_scale = 1.0, .verbosity = 0};
    EXPECT_THAT(diagnosed(options, 1e-9), testing::IsEmpty()) << level;
  }
}

TEST(Watch, MistakesSaySo) {
  WatchedNet net, other;
  torch::optim::SGD sgd(net->parameters(), 0.01), others(other->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.verbosity = 0});
  auto [stranger, foreign] = amp::initialize(other, others, {.verbosity = 0});
  Kept sink;
  EXPECT_THROW(insight::watch(model, optimizer, sink, {.every = 0}), ConfigError);
  EXPECT_THROW(insight::watch(model, foreign, sink), ConfigError);
  Watch watch = insight::watch(model, optimizer, sink);
  const Watch moved = std::move(watch);
  EXPECT_THROW(watch.step(), ConfigError);  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace mezzo::insight
