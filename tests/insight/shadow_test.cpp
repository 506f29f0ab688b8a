// shadow_run() against float64: own and accumulated errors, forward and backward, at every level,
// and nothing of the training moves.
#include "mezzo/insight_shadow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "insight/gallery.h"
#include "insight/noisy_training.h"
#include "mezzo/recompute.h"

namespace mezzo::insight {
namespace {

/// Products in a row: what they are in float64 and with rounding is easy to say.
struct ChainImpl : torch::nn::Module {
  explicit ChainImpl(int length) {
    for (int i = 0; i < length; ++i) {
      weights.push_back(
          register_parameter("w" + std::to_string(i), torch::randn({32, 32}) / std::sqrt(32.0)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const at::Tensor& weight : weights) x = torch::mm(x, weight);
    return x;
  }
  std::vector<at::Tensor> weights;
};
TORCH_MODULE(Chain);

const OperatorError& find_error(const ShadowRun& run, const std::string& name,
                                const std::string& module, bool backward = false) {
  for (const OperatorError& each : run.operators()) {
    if (each.name == name && each.module == module && each.backward == backward) return each;
  }
  ADD_FAILURE() << "no " << name << " of " << module << " in\n" << run.to_text(100);
  static const OperatorError kNone{};
  return kNone;
}

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

at::Tensor rounded(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.detach().to(type).to(at::kDouble);
}

TEST(Shadow, ErrorsOfAChainOfProductsAreThoseOfRoundingInDouble) {
  for (const auto& [level, type] : {std::pair("O1", at::kHalf), std::pair("O4", at::kBFloat16)}) {
    torch::manual_seed(1);
    Chain net(3);
    torch::optim::SGD sgd(net->parameters(), 0.01);
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .loss_scale = 128.0, .verbosity = 0});
    const at::Tensor x = torch::randn({16, 32});
    const ShadowRun run = shadow_run(model, [&, &model = model] { return model(x).sum(); });

    at::Tensor exact = x.to(at::kDouble), low = rounded(x, type);
    for (std::size_t i = 0; i < 3; ++i) {
      const at::Tensor weight = net->weights[i].detach();
      const at::Tensor own =
          rounded(torch::mm(rounded(exact.to(at::kFloat), type), rounded(weight, type)), type);
      exact = torch::mm(exact, weight.to(at::kDouble));
      low = rounded(torch::mm(low, rounded(weight, type)), type);
      const OperatorError& error = find_error(run, "mm", "w" + std::to_string(i));
      const double scale = largest(exact);
      // The sums of a product may round to a neighbour.
      const double slack = type == at::kHalf ? 1e-3 : 8e-3;
      EXPECT_NEAR(error.own, largest(own - exact) / scale, slack) << level << i;
      EXPECT_NEAR(error.accumulated, largest(low - exact) / scale, slack) << level << i;
      EXPECT_GT(error.own, 0) << level << i;
      EXPECT_EQ(error.dtype, type);
    }
    const double first = find_error(run, "mm", "w0").accumulated;
    EXPECT_NEAR(first, find_error(run, "mm", "w0").own, 1e-12) << "nothing came before";
    EXPECT_GT(find_error(run, "mm", "w2").accumulated, find_error(run, "mm", "w2").own);
    EXPECT_EQ(find_error(run, "sum", "after w2").own, 0) << "computed in float";
    EXPECT_GT(find_error(run, "sum", "after w2").accumulated, 0);
  }
}

TEST(Shadow, BackwardErrorsAreThoseOfRoundedGradients) {
  torch::manual_seed(2);
  Chain net(2);
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .loss_scale = 64.0, .verbosity = 0});
  const at::Tensor x = torch::randn({16, 32}), mix = torch::randn({16, 32});
  const ShadowRun run =
      shadow_run(model, [&, &model = model] { return (model(x).to(at::kFloat) * mix).sum(); });
  // The last product: the gradient that arrives is 64 mix, rounded to half.
  const at::Tensor gradient = (mix * 64).to(at::kDouble), low = rounded(mix * 64, at::kHalf);
  const at::Tensor input = torch::mm(x.to(at::kDouble), net->weights[0].to(at::kDouble)).detach();
  const at::Tensor weight = net->weights[1].detach().to(at::kDouble);
  const at::Tensor to_input = torch::mm(gradient, weight.t());
  const at::Tensor to_weight = torch::mm(input.t(), gradient);
  const at::Tensor low_input = rounded(torch::mm(low, rounded(weight, at::kHalf).t()), at::kHalf);
  const at::Tensor low_weight =
      rounded(torch::mm(rounded(input.to(at::kFloat), at::kHalf).t(), low), at::kHalf);
  const double expected = std::max(largest(low_input - to_input) / largest(to_input),
                                   largest(low_weight - to_weight) / largest(to_weight));
  EXPECT_NEAR(find_error(run, "mm", "w1", true).own, expected, 5e-4);
  EXPECT_GT(find_error(run, "mm", "w0", true).accumulated, 0);
}

TEST(Shadow, TheOperatorThatLosesMostComesFirst) {
  // A difference of nearly equal numbers: what is left of 1000 + x in half are its last digits.
  Fault fault{.name = "cancellation", .middle = [](const at::Tensor& x) {
                return (x.to(at::kHalf) + 1000.0F).sub(1000.0F).mul(x) + x;
              }};
  fault.input = 0.3;
  Scene scene(fault);
  const ShadowRun run = scene.shadow();
  ASSERT_FALSE(run.operators().empty());
  EXPECT_TRUE(std::ranges::is_sorted(run.operators(), std::ranges::greater(), &OperatorError::own));
  const std::string json = run.to_json();
  const auto parsed = nlohmann::json::parse(json);
  EXPECT_EQ(parsed["level"], "O1");
  EXPECT_EQ(parsed["operators"].size(), run.operators().size());
  EXPECT_THAT(run.to_text(), testing::HasSubstr("O1 against float"));
}

TEST(Shadow, AnOverflowOfTheLowTypeIsAnInfiniteError) {
  Fault fault{.name = "overflow", .input = 300};
  fault.middle = [](const at::Tensor& x) { return x * x; };
  const ShadowRun run = Scene(fault).shadow();
  const OperatorError& first = run.operators().front();
  EXPECT_EQ(first.name, "mul") << run.to_text();
  EXPECT_EQ(first.module, "between stem and head");
  EXPECT_TRUE(std::isinf(first.own));
  EXPECT_TRUE(std::isinf(first.accumulated));
  EXPECT_TRUE(nlohmann::json::parse(run.to_json())["operators"][0]["own"].is_null());
}

TEST(Shadow, AtO0NothingIsLost) {
  Fault fault{.name = "float", .level = "O0", .middle = [](const at::Tensor& x) {
                return torch::dropout(x.clone().relu_(), 0.5, true).softmax(1);
              }};
  fault.scale = 1;
  const ShadowRun run = Scene(fault).shadow();
  EXPECT_GE(run.operators().size(), 8U);
  EXPECT_TRUE(run.casts().empty());
  for (const OperatorError& each : run.operators()) {
    EXPECT_EQ(each.own, 0) << each.name;
    EXPECT_EQ(each.accumulated, 0) << each.name;
  }
}

TEST(Shadow, CastsAreNamedWithWhatTheyCost) {
  for (const std::string level : {"O1", "O2"}) {
    Fault fault{.name = "casts", .level = level};
    // Float16 keeps nothing of one weight: it is below its least number.
    fault.spoil = [](SandwichImpl& net) {
      net.stem->weight[0].fill_(0.1);
      net.head->weight.fill_(1e-9);
    };
    const ShadowRun run = Scene(fault).shadow();
    const auto found = std::ranges::find(run.casts(), "head.weight", &CastError::parameter);
    ASSERT_NE(found, run.casts().end()) << level << run.to_text();
    EXPECT_EQ(found->module, "head") << level;
    EXPECT_EQ(found->dtype, at::kHalf) << level;
    EXPECT_NEAR(found->error, 1, 1e-6) << level;
    EXPECT_GT(found->seconds, 0) << level;
    const auto stem = std::ranges::find(run.casts(), "stem.weight", &CastError::parameter);
    ASSERT_NE(stem, run.casts().end()) << level;
    const double lost = std::fabs(static_cast<double>(at::Half(0.1F)) - 0.1);
    EXPECT_NEAR(stem->error, lost * 4, 1e-5) << level << ": over the largest of the result, 1";
  }
}

TEST(Shadow, AtWholeModelLevelsWeightsAreComparedWithTheirMasters) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(32, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 32));
    torch::optim::SGD sgd(net->parameters(), 0.01);
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .loss_scale = 8.0, .verbosity = 0});
    const at::Tensor x = torch::randn({8, 32});
    const ShadowRun run = shadow_run(model, [&, &model = model] { return model(x).pow(2).mean(); });
    const OperatorError& product = find_error(run, "addmm", "2");
    const double unit = level == "O5" ? 1.0 / 256 : 1.0 / 2048;
    EXPECT_GT(product.own, unit / 8) << level;
    EXPECT_LT(product.own, unit * 8) << level;
    EXPECT_GE(find_error(run, "addmm", "2", true).own, unit / 8) << level;
    EXPECT_EQ(product.dtype, level == "O5" ? at::kBFloat16 : at::kHalf);
  }
}

TEST(Shadow, LeavesTrainingAloneToTheBit) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    const auto without = trained_noisily(level, false, {});
    const auto with = trained_noisily(
        level, false, [](const NoisyStep& step) { shadow_run(step.model, step.loss); });
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i)
      EXPECT_TRUE(with[i].equal(without[i])) << level << " tensor " << i;
  }
}

TEST(Shadow, RecomputedPartsAndInPlaceOperatorsAreCompared) {
  Fault fault{
      .name = "recomputed", .middle = [](const at::Tensor& x) {
        return recompute([](const at::Tensor& y) { return (torch::mm(y, y.t()) * 0.5).relu_(); }, x)
            .narrow(1, 0, 1)
            .expand({3, 8});
      }};
  const ShadowRun run = Scene(fault).shadow();
  for (const std::string name : {"relu_", "mm"}) {
    const auto calls = std::ranges::count_if(run.operators(), [&](const OperatorError& each) {
      return each.name == name && !each.backward;
    });
    EXPECT_EQ(calls, 1) << name << ": twice in the program, once in the list";
    find_error(run, name, "between stem and head");
    find_error(run, name, "after stem", true);  // the head is not computed again
  }
}

TEST(Shadow, AFunctionThatGivesNoLossIsRefused) {
  Fault fault{.name = "no loss", .loss = [](const at::Tensor& y) { return y; }};
  EXPECT_THROW(Scene(fault).shadow(), ConfigError);
}

TEST(Shadow, ItsFindingsGoIntoALogAndBack) {
  torch::manual_seed(1);
  Chain net(3);
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .loss_scale = 128.0, .verbosity = 0});
  const at::Tensor x = torch::randn({16, 32});
  const ShadowRun run = shadow_run(model, [&, &model = model] { return model(x).sum(); });
  const auto file = std::filesystem::path(testing::TempDir()) / "mezzo_shadow_test.jsonl";
  {
    const auto log = report::json_lines(file);
    log->write(report::RunStarted{.run = "O1"});
    run.write(*log);
  }
  const report::Report all = report::read(file);
  std::filesystem::remove(file);
  ASSERT_EQ(all.runs.at(0).compared.size(), 1U);
  const report::PrecisionCompared& compared = all.runs[0].compared[0];
  EXPECT_EQ(compared, run.to_event());
  EXPECT_EQ(compared.level, "O1");
  EXPECT_EQ(compared.scale, 128);
  EXPECT_EQ(compared.text, run.to_text());
  ASSERT_EQ(compared.operators.size(), run.operators().size());
  ASSERT_EQ(compared.casts.size(), run.casts().size());
  EXPECT_EQ(compared.operators[0].own, run.operators()[0].own);
  EXPECT_EQ(compared.operators[0].type, "float16");
  EXPECT_EQ(compared.casts[0].parameter, run.casts()[0].parameter);
}

}  // namespace
}  // namespace mezzo::insight
