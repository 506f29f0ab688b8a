// lint() finds what will go wrong before the first step.
#include "mezzo/insight_lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mezzo/amp.h"
#include "mezzo/deploy_trace.h"

namespace a_program {

struct Doubling : torch::autograd::Function<Doubling> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
};

}  // namespace a_program

namespace mezzo::insight {
namespace {

/// Everything that lint() knows, once.
struct FaultyImpl : torch::nn::Module {
  FaultyImpl() {
    first = register_module("first", torch::nn::Linear(16, 16));
    norm =
        register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16}).eps(1e-12)));
    frozen = register_module("frozen", torch::nn::BatchNorm1d(16));
    odd = register_module("odd", torch::nn::Linear(16, 10));
    table = register_buffer("table", torch::ones({16}));
    extra = register_parameter("extra", torch::ones({16}));
    const torch::NoGradGuard no_grad;
    first->weight[0][0] = 1e6;
    frozen->eval();
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = a_program::Doubling::apply(norm(first(x)) * table + extra);
    return odd(frozen(y.masked_fill(y > 1e3, -1e9)));
  }
  torch::nn::Linear first{nullptr}, odd{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::BatchNorm1d frozen{nullptr};
  at::Tensor table, extra;
};
TORCH_MODULE(Faulty);

std::vector<at::Tensor> without_extra(const Faulty& net) {
  std::vector<at::Tensor> parameters;
  for (const auto& item : net->named_parameters()) {
    if (item.key() != "extra") parameters.push_back(item.value());
  }
  return parameters;
}

std::vector<std::string> places(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& each : findings) {
    EXPECT_FALSE(each.evidence.empty()) << each.kind;
    EXPECT_FALSE(each.advice.empty()) << each.kind;
    all.push_back(each.severity + " " + each.kind + " " + each.where);
  }
  return all;
}

const std::vector<std::string> kAll{
    "error range first.weight",      "warning mask masked_fill",    "warning unowned extra",
    "warning optimizer_eps Adam",    "warning epsilon norm",        "warning buffer table",
    "info custom_function Doubling", "info batch_norm_eval frozen", "info sizes odd.weight"};

TEST(Lint, FindsEachFaultOnceInABareNetwork) {
  Faulty net;
  torch::optim::Adam adam(without_extra(net));
  EXPECT_THAT(places(lint(net, adam, {torch::ones({4, 16})})), testing::ElementsAreArray(kAll));
}

TEST(Lint, FindsTheSameInAnInitializedModelAndLeavesItAlone) {
  torch::manual_seed(1);
  Faulty net;
  torch::optim::Adam adam(without_extra(net));
  auto [model, optimizer] = amp::initialize(net, adam, {.opt_level = "O1", .verbosity = 0});
  const auto before = amp::model_state_dict(model);
  torch::manual_seed(2);
  EXPECT_THAT(places(lint(model, optimizer, {torch::ones({4, 16})})),
              testing::ElementsAreArray(kAll));
  const at::Tensor drawn = torch::rand({2});
  torch::manual_seed(2);
  EXPECT_TRUE(drawn.equal(torch::rand({2}))) << "random numbers were used up";
  for (const auto& item : amp::model_state_dict(model))
    EXPECT_TRUE(item.value().equal(before[item.key()])) << item.key();
}

TEST(Lint, LowNetworksOwnTheirWeightsThroughMasters) {
  torch::nn::Linear net(8, 8);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O2", .verbosity = 0});
  EXPECT_THAT(places(lint(model, optimizer)), testing::IsEmpty());
  EXPECT_THAT(places(lint(model, optimizer.inner())), testing::IsEmpty());
}

/// Linear(16, 16) and something behind it.
struct GuardedImpl : torch::nn::Module {
  explicit GuardedImpl(std::function<at::Tensor(const at::Tensor&)> behind)
      : behind_(std::move(behind)) {
    first = register_module("first", torch::nn::Linear(16, 16));
  }
  at::Tensor forward(const at::Tensor& x) { return behind_(first(x)); }
  torch::nn::Linear first{nullptr};

 private:
  std::function<at::Tensor(const at::Tensor&)> behind_;
};
TORCH_MODULE(Guarded);

std::vector<Finding> lint_guarded(const std::function<at::Tensor(const at::Tensor&)>& behind,
                                  const std::string& level = "") {
  Guarded net(behind);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const Examples examples{torch::ones({4, 16})};
  if (level.empty()) return lint(net, sgd, examples);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = level, .verbosity = 0});
  return lint(model, optimizer, examples);
}

using T = at::Tensor;
using Guards = std::vector<std::tuple<std::string, std::string, std::function<T(const T&)>>>;

/// The operators that are given the epsilon and that rely on it, and the program.
const Guards& useless_guards() {
  namespace F = torch::nn::functional;
  static const Guards all{
      {"add", "div", [](const T& y) { return y / (y.relu() + 1e-8); }},
      {"add", "div", [](const T& y) { return y / (1e-8 + y.relu()).unsqueeze(0); }},
      {"add_", "div_", [](const T& y) { return y.clone().div_(y.relu().add_(1e-8)); }},
      {"add", "div", [](const T& y) { return y / (y.norm(2, 1, true) + 1e-12).expand_as(y); }},
      {"add", "div", [](const T& y) { return y / (y.relu() + torch::full({1}, 1e-8)); }},
      {"add", "div", [](const T& y) { return y / torch::mul(y.abs() + 1e-8, 2).sum(1, true); }},
      {"add", "sqrt", [](const T& y) { return (y.relu() + 1e-8).sqrt(); }},
      {"add", "rsqrt", [](const T& y) { return y * (y.square().mean(1, true) + 1e-10).rsqrt(); }},
      {"add", "log", [](const T& y) { return (y.softmax(1) + 1e-8).log(); }},
      {"add", "log2", [](const T& y) { return (y.softmax(1) + 1e-9).log2(); }},
      {"add", "log", [](const T& y) { return (1 - y.sigmoid() + 1e-8).log(); }},
      {"add", "pow", [](const T& y) { return y * (y.relu() + 1e-8).pow(-0.5); }},
      {"add", "pow", [](const T& y) { return (y.relu() + 1e-8).pow(0.5); }},
      {"add", "reciprocal", [](const T& y) { return y * (y.relu() + 1e-8).reciprocal(); }},
      // Not zero, but its inverse is too large.
      {"add", "reciprocal", [](const T& y) { return y * (y.relu() + 1e-6).reciprocal(); }},
      {"add", "div", [](const T& y) { return y * (1 / (y.relu() + 1e-6)); }},
      {"add", "div", [](const T& y) { return y * torch::ones_like(y).div(y.relu() + 1e-6); }},
      {"add", "div",
       [](const T& y) { return torch::full({1}, -0.5).expand_as(y) / (y.relu() + 1e-6); }},
      {"clamp_min", "div", [](const T& y) { return y / y.relu().clamp_min(1e-8); }},
      {"clamp", "log", [](const T& y) { return y.softmax(1).clamp(1e-8, 1).log(); }},
      {"clamp_min_", "log", [](const T& y) { return y.softmax(1).clamp_min_(1e-12).log(); }},
      {"maximum", "div", [](const T& y) { return y / torch::maximum(y, torch::full({1}, 1e-8)); }},
      {"where", "div",
       [](const T& y) { return y / torch::where(y > 0, y, torch::full({}, 1e-8)); }},
      {"masked_fill", "div", [](const T& y) { return y / y.masked_fill(y <= 0, 1e-8); }},
      {"clamp_min", "div",
       [](const T& y) { return F::normalize(y, F::NormalizeFuncOptions().dim(1)); }},
  };
  return all;
}

TEST(Lint, FindsEpsilonsThatAreZeroInHalfWhereverTheyGuard) {
  for (const std::string level : {"", "O0", "O1", "O2", "O3"}) {
    for (const auto& [giver, spender, behind] : useless_guards()) {
      const std::vector<Finding> found = lint_guarded(behind, level);
      ASSERT_THAT(places(found), testing::ElementsAre("warning epsilon " + giver))
          << level << ' ' << spender;
      EXPECT_THAT(found[0].evidence, testing::HasSubstr(spender)) << level;
      EXPECT_THAT(found[0].evidence, testing::HasSubstr("float16 (O1, O2, O3)"));
    }
  }
}

TEST(Lint, EpsilonsThatHalfHoldsOrThatGuardNothingAreFine) {
  const std::vector<std::function<T(const T&)>> sound{
      [](const T& y) { return y / (y.relu() + 1e-3); },
      [](const T& y) { return y / (y.relu() + 1e-6); },
      [](const T& y) { return torch::full_like(y, 1e-3) / (y.relu() + 1e-6); },
      [](const T& y) { return torch::ones_like(y).mul_(y) / (y.relu() + 1e-6); },
      [](const T& y) {
        const T some = y.clone();
        some.select(0, 0).fill_(1);
        return some / (y.relu() + 1e-6);
      },
      [](const T& y) { return (y.relu() + 1e-6).sqrt(); },
      [](const T& y) { return y.softmax(1).clamp_min(1e-6).log(); },
      [](const T& y) { return y / (y.relu() + 1e-8 + 1); },
      [](const T& y) { return y + 1e-8; },
      [](const T& y) { return (y + 1e-8) / 2; },
      [](const T& y) { return (y + 1e-8).exp().log(); },
      [](const T& y) { return (y + 1e-8).pow(2); },
      [](const T& y) { return torch::add(y.relu(), y.abs(), 1e-9).log(); },
      [](const T& y) { return (y.to(at::kDouble).relu() + 1e-8).log().to(at::kFloat); },
      [](const T& y) {
        const T z = y.relu() + 1e-8;
        return y / z.detach().clone().fill_(1);
      },
  };
  for (std::size_t i = 0; i < sound.size(); ++i)
    EXPECT_THAT(places(lint_guarded(sound[i])), testing::IsEmpty()) << i;
}

/// A division by what half takes for zero: a call that lint() made shows.
T beyond(const T& x) {
  return x / (x.relu() + 1e-8);
}

struct Switched {
  T data;
  bool on = true;
};

template <typename... Args>
struct TakesImpl : torch::nn::Module {
  T forward(Args... args) { return sum_of(args...); }

 private:
  static T value_of(const T& x) { return beyond(x); }
  static T value_of(double x) { return torch::full({1}, x); }
  static T value_of(const std::optional<T>& x) { return x ? beyond(*x) : torch::zeros({1}); }
  static T value_of(const std::vector<T>& x) { return beyond(x.at(0)) + x.at(1); }
  static T value_of(const std::pair<T, T>& x) { return beyond(x.first) + x.second; }
  static T value_of(const std::map<std::string, T>& x) { return beyond(x.at("x")); }
  static T value_of(const Switched& x) { return x.on ? beyond(x.data) : x.data; }
  static T value_of(const c10::IValue& x) { return beyond(x.toTensor()); }
  template <typename... Each>
  static T sum_of(const Each&... each) {
    return (value_of(each) + ...);
  }
};

/// Does lint() make calls of these, bare and initialized?
template <typename... Args, typename E>
void expect_calls(const E& examples) {
  auto net = std::make_shared<TakesImpl<Args...>>();
  net->register_module("layer", torch::nn::Linear(8, 8));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THAT(places(lint(net, sgd)), testing::IsEmpty());
  EXPECT_THAT(places(lint(net, sgd, examples)), testing::ElementsAre("warning epsilon add"));
  for (const std::string level : {"O1", "O2"}) {
    auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = level, .verbosity = 0});
    EXPECT_THAT(places(lint(model, optimizer)), testing::IsEmpty());
    EXPECT_THAT(places(lint(model, optimizer, examples)),
                testing::ElementsAre("warning epsilon add"))
        << level;
  }
}

TEST(Lint, TakesWhatForwardTakes) {
  const T x = torch::ones({2, 8});
  expect_calls<T>(x);
  expect_calls<T>(std::vector<T>{x, x});
  expect_calls<T>(std::tuple{x});
  expect_calls<T, T>(std::vector<T>{x, x});
  expect_calls<T, T>(std::tuple{x, x});
  expect_calls<T, T>(std::pair{x, x});
  expect_calls<T, T>(std::vector{std::tuple{x, x}, std::tuple{x, x}});
  expect_calls<T, T, T>(std::vector<T>{x, x, x});
  expect_calls<T, double>(std::tuple{x, 0.5});
  expect_calls<T, double>(std::vector<c10::IValue>{x, 0.5});
  expect_calls<T, double>(std::vector<std::vector<c10::IValue>>{{x, 0.5}, {x, 0.25}});
  expect_calls<T, double>(deploy::Examples{x, 0.5});
  expect_calls<double, std::optional<T>>(std::tuple{0.5, std::optional<T>(x)});
  expect_calls<double, std::optional<T>>(std::vector<c10::IValue>{0.5, x});
  expect_calls<std::vector<T>>(std::vector<T>{x, x});
  expect_calls<std::vector<T>>(std::tuple{std::vector<T>{x, x}});
  expect_calls<std::vector<T>, T>(std::tuple{std::vector<T>{x, x}, x});
  expect_calls<std::pair<T, T>>(std::pair{x, x});
  expect_calls<std::map<std::string, T>>(std::map<std::string, T>{{"x", x}});
  expect_calls<std::map<std::string, T>, T>(std::tuple{std::map<std::string, T>{{"x", x}}, x});
  expect_calls<Switched>(Switched{x});
  expect_calls<Switched, T>(std::tuple{Switched{x}, x});
  expect_calls<Switched>(std::vector<Switched>{{x}, {x}});
  expect_calls<c10::IValue>(std::vector<c10::IValue>{x});
}

TEST(Lint, TakesNetworksOfAnyKind) {
  const T x = torch::ones({2, 8});
  torch::nn::AnyModule any{torch::nn::Linear(8, 8)};
  torch::optim::SGD sgd(any.ptr()->parameters(), 0.1);
  EXPECT_THAT(places(lint(any, sgd, {x})), testing::IsEmpty());
  torch::nn::LSTM lstm(8, 8);
  torch::optim::SGD of_lstm(lstm->parameters(), 0.1);
  EXPECT_THAT(places(lint(lstm, of_lstm, std::tuple{torch::ones({3, 2, 8})})), testing::IsEmpty());
}

TEST(Lint, TakesExamplesInBraces) {
  const T x = torch::ones({2, 8});
  auto pair = std::make_shared<TakesImpl<T, T>>();
  auto mixed = std::make_shared<TakesImpl<T, double>>();
  torch::nn::Linear layer(8, 8);
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  const auto found = testing::ElementsAre("warning epsilon add");
  EXPECT_THAT(places(lint(pair, sgd, {x, x})), found);
  EXPECT_THAT(places(lint(pair, sgd, {{x, x}, {x, x}})), found);
  EXPECT_THAT(places(lint(mixed, sgd, {x, 0.5})), found);
  EXPECT_THAT(places(lint(mixed, sgd, {{x, 0.5}, {x, 0.25}})), found);
  EXPECT_THAT(places(lint(pair, sgd, {})), testing::IsEmpty());
  EXPECT_THROW(lint(pair, sgd, {x, x, x}), ConfigError);
  EXPECT_THROW(lint(mixed, sgd, {x, x}), ConfigError);
  auto typed = std::make_shared<TakesImpl<Switched>>();
  EXPECT_THROW(lint(typed, sgd, {x}), ConfigError) << "no value of TorchScript becomes a struct";
}

TEST(Lint, ASoundNetworkHasNoFindings) {
  torch::nn::Sequential net(torch::nn::Linear(16, 16), torch::nn::BatchNorm1d(16),
                            torch::nn::Linear(16, 8));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THAT(places(lint(net, sgd, {torch::ones({4, 16})})), testing::IsEmpty());
}

}  // namespace
}  // namespace mezzo::insight
