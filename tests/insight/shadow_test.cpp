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
      // The first product gets floats, and its casts are its own; the others get rounded numbers.
      const at::Tensor rounded_input = rounded(exact.to(at::kFloat), type);
      const at::Tensor own = rounded(torch::mm(rounded_input, rounded(weight, type)), type);
      const at::Tensor same = torch::mm(i == 0 ? exact : rounded_input, weight.to(at::kDouble));
      exact = torch::mm(exact, weight.to(at::kDouble));
      low = rounded(torch::mm(low, rounded(weight, type)), type);
      const OperatorError& error = find_error(run, "mm", "w" + std::to_string(i));
      const double scale = largest(exact);
      // The sums of a product may round to a neighbour.
      const double slack = type == at::kHalf ? 1e-3 : 8e-3;
      EXPECT_NEAR(error.own, largest(own - same) / largest(same), 2e-6) << level << i;
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
  // Both inputs come rounded.
  const at::Tensor input = rounded(torch::mm(x, net->weights[0]), at::kHalf);
  const at::Tensor weight = net->weights[1].detach().to(at::kDouble);
  const at::Tensor to_input = torch::mm(low, weight.t());
  const at::Tensor to_weight = torch::mm(input.t(), low);
  const at::Tensor low_input = rounded(torch::mm(low, rounded(weight, at::kHalf).t()), at::kHalf);
  const at::Tensor low_weight = rounded(torch::mm(input.t(), low), at::kHalf);
  EXPECT_GT(largest(low - gradient), 0) << "else nothing is tested";
  const double expected = std::max(largest(low_input - to_input) / largest(to_input),
                                   largest(low_weight - to_weight) / largest(to_weight));
  EXPECT_NEAR(find_error(run, "mm", "w1", true).own, expected, 2e-6);
  EXPECT_GT(find_error(run, "mm", "w0", true).accumulated, 0);
}

/// Operators that lose nothing, behind a layer that rounds.
const std::vector<std::pair<std::string, Step>>& exact_operators() {
  static const std::vector<std::pair<std::string, Step>> all{
      {"mul", [](const at::Tensor& x) { return x * 1.0F; }},
      {"mul", [](const at::Tensor& x) { return x * torch::ones_like(x); }},
      {"div", [](const at::Tensor& x) { return x / 2; }},
      {"neg", [](const at::Tensor& x) { return -x; }},
      {"abs", [](const at::Tensor& x) { return x.abs(); }},
      {"relu", [](const at::Tensor& x) { return x.relu(); }},
      {"relu_", [](const at::Tensor& x) { return (x * 2).relu_(); }},
      {"mul_", [](const at::Tensor& x) { return x.clone().mul_(0.5); }},
      {"clone", [](const at::Tensor& x) { return x.clone(); }},
      {"cat",
       [](const at::Tensor& x) {
         return torch::cat({x, -x}, 0).narrow(0, 0, 3);
       }},
      {"stack",
       [](const at::Tensor& x) {
         return torch::stack({x, x}).select(0, 1);
       }},
      {"flip", [](const at::Tensor& x) { return x.flip({1}); }},
      {"roll", [](const at::Tensor& x) { return x.roll(1, 1); }},
      {"index_select",
       [](const at::Tensor& x) { return x.index_select(1, torch::arange(7, -1, -1)); }},
      {"where", [](const at::Tensor& x) { return torch::where(x > 0, x, x * 2); }},
      {"maximum", [](const at::Tensor& x) { return torch::maximum(x, -x); }},
      {"masked_fill", [](const at::Tensor& x) { return x.masked_fill(x < 0, 0); }},
      {"sort", [](const at::Tensor& x) { return std::get<0>(x.sort(1)); }},
      {"topk", [](const at::Tensor& x) { return std::get<0>(x.topk(8, 1)); }},
      {"aminmax",
       [](const at::Tensor& x) { return x + 0 * std::get<1>(torch::aminmax(x.detach())); }},
      {"max",
       [](const at::Tensor& x) {
         return std::get<0>(x.max(1, true)).expand({3, 8});
       }},
      {"mul", [](const at::Tensor& x) { return x.t().contiguous().t() * 4; }},
      {"mul",
       [](const at::Tensor& x) {
         return x.narrow(1, 0, 4).repeat({1, 2}) * 0.25;
       }},
      {"max_pool1d",
       [](const at::Tensor& x) {
         return torch::max_pool1d(x.unsqueeze(0), 2, 2)[0].repeat({1, 2});
       }},
      {"constant_pad_nd",
       [](const at::Tensor& x) {
         return torch::constant_pad_nd(x, {1, 1}).narrow(1, 1, 8);
       }},
  };
  return all;
}

TEST(Shadow, AnExactOperatorHasNoErrorOfItsOwnWhateverCameBefore) {
  for (const std::string level : {"O1", "O2", "O3", "O4", "O5"}) {
    for (const auto& [name, middle] : exact_operators()) {
      Fault fault{.name = "exact", .level = level, .middle = middle};
      fault.spoil = [](SandwichImpl& net) {
        torch::manual_seed(5);
        net.stem->weight.normal_();
        net.head->weight.normal_();
      };
      fault.spoil_data = [](at::Tensor& x) { x.normal_(); };
      fault.loss = [](const at::Tensor& y) { return y.pow(2).sum(); };
      fault.scale = 8;
      const ShadowRun run = Scene(fault).shadow();
      bool found = false;
      for (const OperatorError& each : run.operators()) {
        if (each.name != name || each.module != kBetween) continue;
        found = true;
        EXPECT_EQ(each.own, 0) << level << ' ' << name << (each.backward ? ", backward" : "");
        EXPECT_GT(each.accumulated, 1e-5) << level << ' ' << name;
      }
      EXPECT_TRUE(found) << level << ' ' << name << '\n' << run.to_text(100);
    }
  }
}

TEST(Shadow, ALayerOfOnesHasTheErrorOfTheLayerBeforeIt) {
  // 1 + 2^-11 lies between two numbers of half: the cast of the first weight loses all there is.
  for (const auto& [level, low] : {std::pair("O1", 1 + 0x1p-11), std::pair("O2", 1 + 0x1p-11),
                                   std::pair("O4", 1 + 0x1p-8), std::pair("O5", 1 + 0x1p-8)}) {
    torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)),
                              torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
    {
      const torch::NoGradGuard no_grad;
      net->parameters()[0].copy_(torch::eye(2) * low);
      net->parameters()[1].copy_(torch::eye(2));
    }
    torch::optim::SGD sgd(net->parameters(), 0.01);
    auto [model, optimizer] =
        amp::initialize(net, sgd, {.opt_level = level, .loss_scale = 1.0, .verbosity = 0});
    const ShadowRun run = shadow_run(model, [&, &model = model] {
      return model(torch::ones({4, 2})).sum();
    });
    const double lost = (low - 1) / low;
    EXPECT_NEAR(find_error(run, "matmul", "0").own, lost, 1e-9) << level << run.to_text();
    EXPECT_NEAR(find_error(run, "matmul", "0").accumulated, lost, 1e-9) << level;
    EXPECT_EQ(find_error(run, "matmul", "1").own, 0) << level;
    EXPECT_NEAR(find_error(run, "matmul", "1").accumulated, lost, 1e-9) << level;
    EXPECT_EQ(find_error(run, "matmul", "1", true).own, 0) << level;
  }
}

TEST(Shadow, TheProgramsOwnHalfNumbersAreComparedWithFloat) {
  // In half 1000.3 is 1000.5; what is left after the difference is exact.
  Fault fault{.name = "own half", .middle = [](const at::Tensor& x) {
                const at::Tensor low = x.to(at::kHalf);
                return low.add(1000).sub(1000) * x;
              }};
  fault.input = 0.3;
  const ShadowRun run = Scene(fault).shadow();
  const double input = static_cast<double>(at::Half(0.3F));
  EXPECT_NEAR(find_error(run, "add", kBetween).own, (1000.5 - 1000 - input) / (1000 + input), 1e-7);
  EXPECT_EQ(find_error(run, "sub", kBetween).own, 0);
}

TEST(Shadow, AGradientThatVanishesIsTheLossOfTheDerivativeThatMadeIt) {
  // 2^-20 times 2^-10 is below half's least number.
  Fault fault{.name = "vanishing", .middle = [](const at::Tensor& x) { return x * 0x1p-10; }};
  fault.loss = [](const at::Tensor& y) { return y.to(at::kFloat).mul(0x1p-17).sum(); };
  fault.scale = 1;
  const ShadowRun run = Scene(fault).shadow();
  EXPECT_EQ(find_error(run, "mul", kBetween, true).own, 1) << run.to_text(100);
  EXPECT_EQ(find_error(run, "mul", kBetween).own, 0);
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
