#include "mezzo/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <thread>

#include "casting/layer.h"
#include "casting/scope.h"

namespace mezzo::amp {
namespace {

at::Tensor random(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

TEST(Autocast, TellsThePolicyInForce) {
  EXPECT_FALSE(Autocast::current());
  const Autocast outer(Policy::defaults(at::kHalf));
  EXPECT_EQ(Autocast::current()->low(), at::kHalf);
  {
    const Autocast inner(Policy::defaults(at::kBFloat16));
    EXPECT_EQ(Autocast::current()->low(), at::kBFloat16);
  }
  EXPECT_EQ(Autocast::current()->low(), at::kHalf);
  const DisableCasts off;
  EXPECT_FALSE(Autocast::current());
}

TEST(Autocast, IsLeftByAnException) {
  const at::Tensor x = random({2, 2});
  try {
    const Autocast scope(Policy::defaults(at::kBFloat16));
    throw std::runtime_error("in the scope");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kFloat);
}

TEST(Autocast, DisableCastsNestsAndAScopeInsideItCastsAgain) {
  const at::Tensor x = random({2, 2});
  const Autocast scope(Policy::defaults(at::kBFloat16));
  {
    const DisableCasts off;
    {
      const DisableCasts again;
      EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kFloat);
    const Autocast inner(Policy::defaults(at::kHalf));
    EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kHalf);
  }
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kBFloat16);
}

TEST(Autocast, BelongsToItsThread) {
  const at::Tensor x = random({2, 2});
  const Autocast scope(Policy::defaults(at::kBFloat16));
  at::ScalarType there = at::kLong;
  std::thread([&] { there = torch::mm(x, x).scalar_type(); }).join();
  EXPECT_EQ(there, at::kFloat);
}

TEST(Autocast, TwoThreadsHaveTwoPolicies) {
  const at::Tensor x = random({2, 2});
  const auto type_under = [&](at::ScalarType low) {
    const Autocast scope(Policy::defaults(low));
    return torch::mm(x, x).scalar_type();
  };
  at::ScalarType there = at::kLong;
  std::thread other([&] { there = type_under(at::kHalf); });
  EXPECT_EQ(type_under(at::kBFloat16), at::kBFloat16);
  other.join();
  EXPECT_EQ(there, at::kHalf);
}

TEST(Autocast, ASnapshotCarriesTheScopeIntoAThread) {
  const at::Tensor x = random({2, 2});
  at::ScalarType there = at::kLong;
  const Autocast scope(Policy::defaults(at::kBFloat16));
  const Snapshot snapshot;
  std::thread(snapshot.wrap([&] { there = torch::mm(x, x).scalar_type(); })).join();
  EXPECT_EQ(there, at::kBFloat16);
}

TEST(Autocast, ASnapshotOfNoScopeSwitchesCastsOff) {
  const Snapshot snapshot;
  const at::Tensor x = random({2, 2});
  const Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(snapshot.wrap([&] { return torch::mm(x, x); })().scalar_type(), at::kFloat);
}

TEST(Autocast, FollowsAPolicyWithOtherClasses) {
  const at::Tensor x = random({2, 2});
  const Policy policy = Policy::defaults(at::kBFloat16)
                            .with("mm", CastClass::kFloat)
                            .with("relu", CastClass::kLow)
                            .with("softmax", CastClass::kNeutral);
  const Autocast scope(policy);
  EXPECT_EQ(torch::mm(x.to(at::kBFloat16), x.to(at::kBFloat16)).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::relu(x).scalar_type(), at::kBFloat16);
  EXPECT_EQ(torch::softmax(x.to(at::kBFloat16), 1).scalar_type(), at::kBFloat16);
}

TEST(Autocast, FollowsAPolicyThatNamesTheLinearFunction) {
  torch::nn::Linear linear(3, 4);
  torch::nn::Linear plain(torch::nn::LinearOptions(3, 4).bias(false));
  const at::Tensor x = random({2, 3});
  for (const char* name : {"linear", "F.linear", "torch.nn.functional.linear", "FullyConnected",
                           "_sparse_FullyConnected"}) {
    const Autocast scope(Policy::defaults(at::kBFloat16).with(name, CastClass::kFloat));
    EXPECT_EQ(linear(x).scalar_type(), at::kFloat) << name;
    EXPECT_EQ(linear(x.unsqueeze(0)).scalar_type(), at::kFloat) << name;
    EXPECT_EQ(plain(x).scalar_type(), at::kFloat) << name;
    EXPECT_EQ(at::linear(x, linear->weight).scalar_type(), at::kFloat) << name;
    EXPECT_EQ(at::mm(x, x.t()).scalar_type(), at::kBFloat16) << name;
  }
  const Autocast scope(Policy::defaults(at::kBFloat16).with("aten::linear", CastClass::kFloat));
  EXPECT_EQ(at::linear(x, linear->weight).scalar_type(), at::kFloat);
  EXPECT_EQ(linear(x).scalar_type(), at::kBFloat16) << "calls addmm";
}

TEST(Autocast, FollowsAPolicyThatNamesAFunctionWrittenOutInAHeader) {
  const at::Tensor x = random({2, 3}).to(at::kBFloat16);
  const at::Tensor target = torch::zeros({2}, at::kLong);
  const auto normalized = [&] { return torch::nn::functional::normalize(x).scalar_type(); };
  const auto loss = [&] { return torch::nn::functional::nll_loss(x, target).scalar_type(); };
  {
    const Autocast scope(Policy::defaults(at::kBFloat16));
    EXPECT_EQ(normalized(), at::kFloat);
    EXPECT_EQ(loss(), at::kFloat);
  }
  const Autocast scope(Policy::defaults(at::kBFloat16)
                           .with("F.normalize", CastClass::kNeutral)
                           .with("nll_loss", CastClass::kNeutral));
  EXPECT_EQ(normalized(), at::kBFloat16);
  EXPECT_EQ(loss(), at::kBFloat16);
}

TEST(Autocast, ABannedOperatorIsAnErrorThatNamesIt) {
  const at::Tensor x = torch::sigmoid(random({2, 2}));
  const Autocast scope(
      Policy::defaults(at::kHalf).with("binary_cross_entropy", CastClass::kBanned));
  try {
    torch::binary_cross_entropy(x, x);
    FAIL() << "nothing was thrown";
  } catch (const UnsupportedError& e) {
    EXPECT_NE(std::string(e.what()).find("binary_cross_entropy"), std::string::npos);
  }
}

TEST(Autocast, AConditionDecidesByAnArgument) {
  const at::Tensor x = random({2, 2}).to(at::kBFloat16);
  const Autocast scope(
      Policy::defaults(at::kBFloat16).with_conditional("gelu", "approximate", {"tanh"}));
  EXPECT_EQ(torch::gelu(x, "tanh").scalar_type(), at::kFloat);
  EXPECT_EQ(torch::gelu(x, "none").scalar_type(), at::kBFloat16);
}

TEST(Autocast, LeavesLibTorchsOwnAutocastAlone) {
  const at::Tensor x = random({2, 2});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kBFloat16);
  {
    const Autocast scope(Policy::defaults(at::kHalf));
    EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kHalf);
    const DisableCasts off;
    EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

TEST(Autocast, WorksInInferenceMode) {
  torch::nn::Linear linear(4, 4);
  const c10::InferenceMode inference;
  const Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(linear(random({2, 4})).scalar_type(), at::kBFloat16);
}

TEST(Autocast, AnOperatorThatIsNotListedHasNoKernelInTheLayer) {
  const Autocast scope(Policy::defaults(at::kHalf));
  const auto has = [operators = casting::layer_operators()](const std::string& name) {
    return std::any_of(operators.begin(), operators.end(),
                       [&](const auto& op) { return op.name == name; });
  };
  EXPECT_FALSE(has("neg"))
      << "a policy that names an operator gives it one for the rest of the process";
  EXPECT_FALSE(has("view"));
  EXPECT_TRUE(has("mm"));
}

TEST(Autocast, HotOperatorsHaveCompiledKernels) {
  const Autocast scope(Policy::defaults(at::kHalf));
  std::set<std::string> compiled;
  for (const casting::LayerOperator& op : casting::layer_operators()) {
    if (op.compiled) compiled.insert(op.name);
  }
  for (const char* name :
       {"mm", "bmm", "addmm", "linear", "conv2d", "_convolution", "softmax.int", "cat",
        "layer_norm", "lstm.input", "scaled_dot_product_attention", "cross_entropy_loss"}) {
    EXPECT_TRUE(compiled.contains(name)) << name;
  }
}

TEST(Autocast, TellsAListenerOfEachCast) {
  std::vector<std::string> told;
  const casting::CastListener listener = [&](std::string_view op, at::ScalarType from,
                                             at::ScalarType to) {
    told.push_back(std::string(op) + " " + c10::toString(from) + ">" + c10::toString(to));
  };
  const at::Tensor x = random({2, 2});
  const casting::Scope scope(Policy::defaults(at::kBFloat16), casting::Mode::kOperators, &listener);
  torch::mm(x, x);
  EXPECT_EQ(told, (std::vector<std::string>{"mm Float>BFloat16", "mm Float>BFloat16"}));
}

TEST(CastFunctions, CastTheirArgumentsInsideAScopeOnly) {
  const at::Tensor x = random({2, 2});
  auto low = half_function([](const at::Tensor& t) { return t.scalar_type(); });
  auto wide = float_function(
      [](const std::vector<at::Tensor>& t) { return torch::mm(t[0], t[0]).scalar_type(); });
  auto widest = promote_function([](const at::Tensor& a, const at::Tensor& b) {
    return std::make_pair(a.scalar_type(), b.scalar_type());
  });
  EXPECT_EQ(low(x), at::kFloat);
  const Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(low(x), at::kBFloat16);
  EXPECT_EQ(wide(std::vector<at::Tensor>{x.to(at::kBFloat16)}), at::kFloat);
  EXPECT_EQ(widest(x, x.to(at::kBFloat16)), std::make_pair(at::kFloat, at::kFloat));
  EXPECT_EQ(widest(x.to(at::kBFloat16), x.to(at::kBFloat16)),
            std::make_pair(at::kBFloat16, at::kBFloat16));
  EXPECT_EQ(widest(x.to(at::kHalf), x.to(at::kBFloat16)), std::make_pair(at::kFloat, at::kFloat));
  const DisableCasts off;
  EXPECT_EQ(low(x), at::kFloat);
}

TEST(CastFunctions, FillTheCallersContainers) {
  std::vector<at::Tensor> seen;
  const Autocast scope(Policy::defaults(at::kBFloat16));
  float_function([](const at::Tensor& t, std::vector<at::Tensor>& out) { out.push_back(t); })(
      random({2, 2}).to(at::kBFloat16), seen);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].scalar_type(), at::kFloat);
  half_function([](std::vector<at::Tensor>& out) { out.push_back(out[0] * 2); })(seen);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].scalar_type(), at::kFloat) << "the caller's own";
  EXPECT_EQ(seen[1].scalar_type(), at::kBFloat16);
}

struct Square : torch::autograd::Function<Square> {
  static inline at::ScalarType forward_type;
  static inline at::ScalarType backward_type;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    forward_type = torch::mm(x, x).scalar_type();
    ctx->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list g) {
    backward_type = g[0].scalar_type();
    return {2 * ctx->get_saved_variables()[0] * g[0]};
  }
};

TEST(CustomFunction, RunsForwardAndBackwardInTheStatedType) {
  const at::Tensor x = random({2, 2}).requires_grad_();
  const Autocast scope(Policy::defaults(at::kBFloat16));
  custom_function<Square>(at::kHalf, x).to(at::kFloat).sum().backward();
  EXPECT_EQ(Square::forward_type, at::kHalf);
  EXPECT_EQ(Square::backward_type, at::kHalf);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
}

at::Tensor shifted(const at::Tensor& x) {
  return x + 1;
}
TORCH_LIBRARY(mezzo_casting_test, library) {
  library.def("shifted_low", shifted);
  library.def("shifted_float", shifted);
}

TEST(RegisteredFunctions, ActOnPoliciesMadeLater) {
  const auto call = [](const char* name, const at::Tensor& x) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(name, "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(x);
  };
  const Policy before = Policy::defaults(at::kBFloat16);
  register_half_function("mezzo_casting_test::shifted_low");
  register_float_function("mezzo_casting_test::shifted_float");
  const at::Tensor x = random({2, 2});
  {
    const Autocast scope(before);
    EXPECT_EQ(call("mezzo_casting_test::shifted_low", x).scalar_type(), at::kFloat);
  }
  const Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(call("mezzo_casting_test::shifted_low", x).scalar_type(), at::kBFloat16);
  EXPECT_EQ(call("mezzo_casting_test::shifted_float", x.to(at::kBFloat16)).scalar_type(),
            at::kFloat);
}

TEST(RegisteredFunctions, ABareNameIsLibTorchs) {
  register_half_function("hardshrink");
  const Policy policy = Policy::defaults(at::kBFloat16);
  EXPECT_EQ(policy.classify("aten::hardshrink"), CastClass::kLow);
  const Autocast scope(policy);
  EXPECT_EQ(torch::hardshrink(random({4})).scalar_type(), at::kBFloat16);
}

TEST(RegisteredFunctions, AnOperatorThatWasUnloadedIsAnErrorOfItsPolicyAlone) {
  auto library = std::make_unique<torch::Library>(torch::Library::DEF, "mezzo_unloaded_test",
                                                  std::nullopt, __FILE__, __LINE__);
  library->def("shifted", shifted);
  const Policy defaults = Policy::defaults(at::kBFloat16);
  const Policy policy = defaults.with("mezzo_unloaded_test::shifted", CastClass::kLow);
  library.reset();
  for (int turn = 0; turn < 2; ++turn) {
    try {
      const Autocast scope(policy);
      FAIL() << "nothing was thrown";
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("mezzo_unloaded_test::shifted"), std::string::npos);
    }
  }
  EXPECT_FALSE(Autocast::current());
  const Autocast scope(defaults);
  EXPECT_EQ(torch::mm(random({2, 2}), random({2, 2})).scalar_type(), at::kBFloat16);
}

TEST(RegisteredFunctions, AnUnknownOperatorIsAnError) {
  EXPECT_THROW(register_half_function("mezzo_casting_test::no_such_operator"), Error);
  EXPECT_THROW(register_half_function("no_such_operator"), Error);
}

}  // namespace
}  // namespace mezzo::amp
