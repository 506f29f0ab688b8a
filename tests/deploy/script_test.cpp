// Modules in mixed precision against the same modules in float.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "messages.h"
#include "mezzo/error.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

using ::testing::HasSubstr;
using torch::jit::IValue;

struct ScriptCase {
  at::ScalarType low;
  bool cast_weights, freeze;
};

const std::vector<ScriptCase> kScriptCases{
    {at::kHalf, false, true},     {at::kHalf, true, true},      {at::kHalf, true, false},
    {at::kHalf, false, false},    {at::kBFloat16, false, true}, {at::kBFloat16, true, true},
    {at::kBFloat16, true, false}, {at::kBFloat16, false, false}};

ScriptOptions options_of(const ScriptCase& one) {
  return {.target_dtype = one.low, .cast_optional_params = one.cast_weights, .freeze = one.freeze};
}

std::string saved(const torch::jit::Module& module) {
  std::ostringstream stream;
  module.save(stream);
  return stream.str();
}

torch::jit::Module reloaded(const torch::jit::Module& module) {
  std::istringstream stream(saved(module));
  return torch::jit::load(stream);
}

at::Tensor run(torch::jit::Module module, const std::vector<IValue>& inputs) {
  const torch::NoGradGuard no_gradients;
  at::Tensor result;
  // The executor specialises from the second call on.
  for (int i = 0; i < 3; ++i) result = module.forward(inputs).toTensor();
  return result;
}

/// The result of a conversion agrees with the module in all cases, before and after a file.
void expect_agrees(const torch::jit::Module& module, const std::vector<IValue>& inputs,
                   double factor = 1) {
  const at::Tensor wanted = run(module, inputs);
  for (const ScriptCase& one : kScriptCases) {
    SCOPED_TRACE(std::string(c10::toString(one.low)) + (one.cast_weights ? ", low weights" : "") +
                 (one.freeze ? ", frozen" : ""));
    ScriptReport report;
    const torch::jit::Module low = convert_hybrid_block(module, options_of(one), &report);
    EXPECT_GT(report.low_calls, 0);
    for (const torch::jit::Module& each : {low, reloaded(low)}) {
      const at::Tensor got = run(each, inputs);
      EXPECT_EQ(got.scalar_type(), wanted.scalar_type());
      EXPECT_EQ(got.sizes(), wanted.sizes());
      EXPECT_LT(difference(got, wanted), factor * tolerance_of(one.low));
      // It really computes in 16 bits.
      EXPECT_GT(difference(got, wanted), 0);
    }
  }
}

TEST(Script, AConvNetAgreesWithFloatWithinTheTypesTolerance) {
  torch::manual_seed(1);
  expect_agrees(conv_net(), {torch::randn({2, 3, 9, 7})});
}

TEST(Script, AnMlpAgreesWithFloat) {
  torch::manual_seed(2);
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  return self.b.forward(torch.gelu(self.a.forward(x))) + x\n",
      {}, {{"a", linear_module(16, 32)}, {"b", linear_module(32, 16)}});
  expect_agrees(net, {torch::randn({5, 16})});
}

TEST(Script, TheModuleThatIsGivenStaysAsItIs) {
  torch::manual_seed(3);
  torch::jit::Module net = conv_net();
  net.train();
  const std::string before = saved(net);
  const auto low = convert_hybrid_block(net, {.cast_optional_params = true, .freeze = false});
  EXPECT_EQ(saved(net), before);
  EXPECT_TRUE(net.is_training());
  EXPECT_FALSE(low.is_training());
  for (const auto& each : net.named_parameters()) EXPECT_EQ(each.value.scalar_type(), at::kFloat);
  for (const auto& each : low.named_parameters()) {
    for (const auto& original : net.named_parameters())
      EXPECT_NE(each.value.data_ptr(), original.value.data_ptr());
  }
}

TEST(Script, TheCustomizedConversionHasLowConvolutionsAndFloatLinears) {
  torch::manual_seed(4);
  const auto net = conv_net();
  const auto low = convert_hybrid_block(net, {.target_dtype_ops = {{"conv2d"}},
                                              .fp32_ops = {{"softmax", "linear"}},
                                              .cast_optional_params = true,
                                              .freeze = false});
  EXPECT_EQ(parameter(low, "conv0.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(parameter(low, "conv1.bias").scalar_type(), at::kHalf);
  EXPECT_EQ(parameter(low, "fc1.weight").scalar_type(), at::kFloat);
  EXPECT_EQ(parameter(low, "fc1.bias").scalar_type(), at::kFloat);
  EXPECT_EQ(parameter(low, "bn0.weight").scalar_type(), at::kFloat);
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  EXPECT_LT(difference(run(low, {x}), run(net, {x})), 0.01);
}

TEST(Script, WeightsStayFloatBehindOneCastEachUnlessTheyAreToBeLow) {
  const auto net = conv_net();
  ScriptReport report;
  const auto low = convert_hybrid_block(net, {.freeze = false}, &report);
  for (const auto& each : low.named_parameters()) EXPECT_EQ(each.value.scalar_type(), at::kFloat);
  EXPECT_EQ(report.weight_casts, 6);
  EXPECT_EQ(report.low_weights, 0);
  ScriptReport stored;
  convert_hybrid_block(net, {.cast_optional_params = true, .freeze = false}, &stored);
  EXPECT_EQ(stored.weight_casts, 0);
  EXPECT_EQ(stored.low_weights, 6);
  EXPECT_LT(stored.bytes_after, stored.bytes_before * 6 / 10);
  // x before conv0, and nothing else: softmax is asked for a float result.
  EXPECT_EQ(stored.casts, 1);
  EXPECT_EQ(stored.guarded_casts, 0);
}

TEST(Script, FrozenModulesHaveNoParametersAndNoCastsOfWeights) {
  for (const bool cast_weights : {false, true}) {
    const auto low = convert_hybrid_block(
        conv_net(), {.target_dtype = at::kBFloat16, .cast_optional_params = cast_weights});
    EXPECT_EQ(low.parameters().size(), 0);
    EXPECT_EQ(count_nodes(low, "aten::to"), 1);
  }
}

TEST(Script, AValueIsCastOnceForAllItsReaders) {
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  a = torch.matmul(x, self.u)\n"
      "  b = torch.matmul(x, self.v)\n"
      "  e = torch.exp(a)\n"
      "  return e + torch.exp(b) + torch.log(torch.abs(a) + 1.0)\n",
      {{"u", torch::randn({6, 6})}, {"v", torch::randn({6, 6})}});
  ScriptReport report;
  convert_hybrid_block(net, {.cast_optional_params = true}, &report);
  // x to half; a, b and |a| + 1 to float.
  EXPECT_EQ(report.casts, 4);
  EXPECT_EQ(report.guarded_casts, 0);
}

TEST(Script, WhatIsWrittenInPlaceIsCastAnew) {
  torch::manual_seed(5);
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  y = x.clone()\n"
      "  a = torch.matmul(y, self.w)\n"
      "  y.add_(1.0)\n"
      "  return a + torch.matmul(y, self.w)\n",
      {{"w", torch::randn({6, 6})}});
  expect_agrees(net, {torch::randn({4, 6})});
}

TEST(Script, BranchesAndLoopsAreFollowed) {
  torch::manual_seed(6);
  const auto net = scripted(
      "def forward(self, x: Tensor, n: int):\n"
      "  y = x\n"
      "  for i in range(n):\n"
      "    if i % 2 == 0:\n"
      "      y = torch.matmul(y, self.w)\n"
      "    else:\n"
      "      y = torch.exp(torch.tanh(y))\n"
      "    y = y / (1.0 + torch.sum(torch.abs(y)))\n"
      "  while bool(torch.sum(y) > 100.0):\n"
      "    y = y * 0.5\n"
      "  return y\n",
      {{"w", torch::randn({6, 6})}});
  for (const int n : {0, 1, 2, 5}) {
    SCOPED_TRACE(n);
    const at::Tensor x = torch::randn({4, 6});
    const auto low = convert_hybrid_block(net);
    EXPECT_EQ(run(low, {x, n}).scalar_type(), at::kFloat);
    EXPECT_LT(difference(run(low, {x, n}), run(net, {x, n})), 0.02);
  }
}

TEST(Script, WeightsAndConstantsAreCastOutsideOfLoops) {
  const auto net = scripted(
      "def forward(self, x: Tensor, n: int):\n"
      "  k = torch.exp(x)\n"
      "  y = torch.matmul(k, self.w)\n"
      "  for i in range(n):\n"
      "    y = y + torch.matmul(k, self.w)\n"
      "  return y\n",
      {{"w", torch::randn({6, 6})}});
  const auto low = convert_hybrid_block(net, {.freeze = false});
  int in_loops = 0;
  for (torch::jit::Node* node : low.get_method("forward").graph()->nodes()) {
    if (node->kind() != c10::prim::Loop) continue;
    for (torch::jit::Node* inner : node->blocks()[0]->nodes())
      in_loops += inner->kind() == c10::aten::to;
  }
  EXPECT_EQ(in_loops, 0) << low.get_method("forward").graph()->toString(false);
}

TEST(Script, ListsAndDictionariesOfTensorsKeepTheirTypes) {
  torch::manual_seed(7);
  const auto net = scripted(
      "def forward(self, x: Tensor, n: int) -> Dict[str, List[Tensor]]:\n"
      "  found: List[Tensor] = []\n"
      "  for i in range(n):\n"
      "    x = torch.matmul(x, self.w)\n"
      "    found.append(x)\n"
      "  named: Dict[str, List[Tensor]] = {'all': found}\n"
      "  named['sum'] = [torch.stack(found).sum(0), torch.cat([found[0], found[n - 1]], 1)]\n"
      "  named['positions'] = [torch.argmax(found[0], 1)]\n"
      "  return named\n",
      {{"w", torch::randn({6, 6}) * 0.4}});
  torch::jit::Module original = net;
  for (const ScriptCase& one : kScriptCases) {
    torch::jit::Module low = convert_hybrid_block(net, options_of(one));
    const at::Tensor x = torch::randn({4, 6});
    const auto wanted = original.forward({x, 3}).toGenericDict();
    const auto got = low.forward({x, 3}).toGenericDict();
    for (const char* key : {"all", "sum"}) {
      const auto right = wanted.at(key).toTensorVector();
      const auto left = got.at(key).toTensorVector();
      ASSERT_EQ(left.size(), right.size());
      for (std::size_t i = 0; i < left.size(); ++i) {
        EXPECT_EQ(left[i].scalar_type(), at::kFloat);
        EXPECT_LT(difference(left[i], right[i]), 2 * tolerance_of(one.low));
      }
    }
    EXPECT_EQ(got.at("positions").toTensorVector()[0].scalar_type(), at::kLong);
  }
}

TEST(Script, IntegersAndBooleansAreNeverCast) {
  torch::manual_seed(8);
  // Nothing tells the types of the inputs but the values that arrive.
  const auto net = scripted(
      "def forward(self, a: Tensor, b: Tensor) -> Tuple[Tensor, Tensor]:\n"
      "  return torch.matmul(a, b), torch.einsum('ij,jk->ik', [a, b])\n");
  torch::jit::Module low = convert_hybrid_block(net);
  const auto whole = low.forward({torch::arange(6).view({2, 3}), torch::ones({3, 2}, at::kLong)});
  EXPECT_EQ(whole.toTupleRef().elements()[0].toTensor().scalar_type(), at::kLong);
  const auto wide =
      low.forward({torch::ones({2, 3}, at::kDouble), torch::ones({3, 2}, at::kDouble)});
  EXPECT_EQ(wide.toTupleRef().elements()[1].toTensor().scalar_type(), at::kDouble);
  const auto real = low.forward({torch::randn({2, 3}), torch::randn({3, 2})});
  EXPECT_EQ(real.toTupleRef().elements()[0].toTensor().scalar_type(), at::kFloat);
  EXPECT_EQ(real.toTupleRef().elements()[1].toTensor().scalar_type(), at::kFloat);
}

torch::jit::Module encoder_layer(int width, int heads) {
  return scripted(
      "def forward(self, x: Tensor, mask: Tensor):\n"
      "  n, l, e = x.size(0), x.size(1), x.size(2)\n"
      "  qkv = self.qkv.forward(torch.layer_norm(x, [e], self.g1, self.b1, 1e-5))\n"
      "  q, k, v = qkv.view([n, l, 3, " +
          std::to_string(heads) +
          ", -1]).permute([2, 0, 3, 1, 4]).unbind(0)\n"
          "  s = torch.matmul(q, k.transpose(-2, -1)) * 0.25\n"
          "  s = s.masked_fill(mask, -1e9)\n"
          "  h = torch.matmul(torch.softmax(s, -1), v).transpose(1, 2).reshape([n, l, e])\n"
          "  x = x + self.out.forward(h)\n"
          "  f = torch.gelu(self.up.forward(torch.layer_norm(x, [e], self.g2, self.b2, 1e-5)))\n"
          "  return x + self.down.forward(f)\n",
      {{"g1", torch::ones(width)},
       {"b1", torch::zeros(width)},
       {"g2", torch::ones(width)},
       {"b2", torch::zeros(width)}},
      {{"qkv", linear_module(width, 3 * width)},
       {"out", linear_module(width, width)},
       {"up", linear_module(width, 2 * width)},
       {"down", linear_module(2 * width, width)}});
}

TEST(Script, ATransformerEncoderWithMasksAgreesWithFloat) {
  torch::manual_seed(9);
  const auto net = scripted(
      "def forward(self, tokens: Tensor, mask: Tensor):\n"
      "  x = torch.embedding(self.table, tokens)\n"
      "  x = self.first.forward(x, mask)\n"
      "  x = self.second.forward(x, mask)\n"
      "  return torch.log_softmax(torch.linear(x, self.table), -1)\n",
      {{"table", torch::randn({50, 16})}},
      {{"first", encoder_layer(16, 4)}, {"second", encoder_layer(16, 4)}});
  const at::Tensor mask = torch::ones({7, 7}, at::kBool).triu(1);
  expect_agrees(net, {torch::randint(50, {2, 7}), mask});
  // Every reader of the table wants it low but the embedding.
  const auto low = convert_hybrid_block(net, {.cast_optional_params = true, .freeze = false});
  EXPECT_EQ(parameter(low, "table").scalar_type(), at::kFloat);
  EXPECT_EQ(parameter(low, "first.qkv.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(parameter(low, "second.g1").scalar_type(), at::kFloat);
}

TEST(Script, AnLstmAgreesWithFloat) {
  torch::manual_seed(10);
  const int hidden = 12;
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  h = torch.zeros([1, x.size(1), 12])\n"
      "  weights = [self.wi, self.wh, self.bi, self.bh]\n"
      "  y, hn, cn = torch.lstm(x, [h, h], weights, True, 1, 0.0, self.training, False, False)\n"
      "  return y + hn + cn\n",
      {{"wi", torch::randn({4 * hidden, 6}) * 0.3},
       {"wh", torch::randn({4 * hidden, hidden}) * 0.3},
       {"bi", torch::randn({4 * hidden}) * 0.1},
       {"bh", torch::randn({4 * hidden}) * 0.1}});
  expect_agrees(net, {torch::randn({5, 3, 6})});
  const auto low = convert_hybrid_block(net, {.cast_optional_params = true, .freeze = false});
  EXPECT_EQ(parameter(low, "wh").scalar_type(), at::kHalf);
}

TEST(Script, OptionalArgumentsAndTuplesAreFollowed) {
  torch::manual_seed(11);
  const auto net = scripted(
      "def split(self, x: Tensor) -> Tuple[Tensor, Optional[Tensor]]:\n"
      "  y = torch.matmul(x, self.w)\n"
      "  return y, (y if self.training else None)\n"
      "def forward(self, x: Tensor, bias: Optional[Tensor] = None):\n"
      "  y, z = self.split(x)\n"
      "  y = torch.linear(y, self.w, bias)\n"
      "  if z is not None:\n"
      "    y = y + z\n"
      "  return y\n",
      {{"w", torch::randn({6, 6}) * 0.4}});
  expect_agrees(net, {torch::randn({4, 6})});
  expect_agrees(net, {torch::randn({4, 6}), torch::randn({6})});
}

TEST(Script, ExcludedModulesAndParametersStayFloat) {
  torch::manual_seed(12);
  const auto net = conv_net();
  const auto types = [&](std::vector<std::string> names) {
    const auto low = convert_hybrid_block(
        net,
        {.excluded_sym_names = std::move(names), .cast_optional_params = true, .freeze = false});
    std::string text;
    for (const char* name : {"conv0.weight", "conv1.weight", "fc1.weight"})
      text += parameter(low, name).scalar_type() == at::kHalf ? 'h' : 'f';
    const at::Tensor x = torch::randn({2, 3, 8, 8});
    EXPECT_LT(difference(run(low, {x}), run(net, {x})), 0.01);
    return text;
  };
  EXPECT_EQ(types({}), "hhh");
  EXPECT_EQ(types({"conv0"}), "fhh");
  EXPECT_EQ(types({"conv1.bias"}), "hfh");
  EXPECT_EQ(types({"conv?"}), "ffh");
  EXPECT_EQ(types({"/fc[0-9]/", "conv0.*"}), "fhf");
  EXPECT_THROW(types({"conv7"}), ConfigError);
  EXPECT_THROW(types({"/(/"}), ConfigError);
}

TEST(Script, ConditionsLookAtArgumentsAndTheirDefaults) {
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.gelu(torch.matmul(x, self.w))\n",
      {{"w", torch::randn({6, 6})}});
  const auto classes = [&](std::vector<std::string> values) {
    ScriptReport report;
    convert_hybrid_block(
        net, {.conditional_fp32_ops = {{{"gelu", "approximate", std::move(values)}}}}, &report);
    return report.float_calls;
  };
  EXPECT_EQ(classes({"none"}), 1);
  EXPECT_EQ(classes({"tanh"}), 0);
}

/// Calls of a traced layer that are low, float, and left as they are.
std::string ways_of(const torch::jit::Module& module, const ScriptOptions& options) {
  ScriptReport report;
  convert_hybrid_block(module, options, &report);
  return std::to_string(report.low_calls) + std::to_string(report.float_calls) +
         std::to_string(report.neutral_calls);
}

TEST(Script, ConditionsHoldForArgumentsThatTracedLayersLeaveOut) {
  namespace nn = torch::nn;
  const at::Tensor x = torch::randn({1, 4, 8, 8});
  const auto plain = trace(nn::Conv2d(nn::Conv2dOptions(4, 4, 3)), {x});
  const auto grouped = trace(nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(2)), {x});
  const auto padded = trace(nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(torch::kSame)), {x});
  const auto text = scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.conv2d(x, self.w)\n",
      {{"w", torch::randn({4, 4, 3, 3})}});
  for (const char* one : {"1", "1.0"}) {
    const ScriptOptions options{.conditional_fp32_ops = {{{"conv2d", "groups", {one}}}}};
    for (const auto& net : {plain, padded, text}) EXPECT_EQ(ways_of(net, options), "010") << one;
    EXPECT_EQ(ways_of(grouped, options), "001");
  }
  const ScriptOptions both{.target_dtype_ops = {{"conv2d"}},
                           .conditional_fp32_ops = {{{"conv2d", "groups", {"1"}}}}};
  for (const auto& net : {plain, padded, text}) EXPECT_EQ(ways_of(net, both), "010");
  EXPECT_EQ(ways_of(grouped, both), "100");
}

TEST(Script, ATracedConvolutionThatAWordPadsIsLow) {
  namespace nn = torch::nn;
  torch::manual_seed(11);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(torch::kSame)), nn::ReLU(),
                     nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(torch::kValid)));
  net->eval();
  expect_agrees(trace(net, {torch::randn({1, 3, 8, 8})}), {torch::randn({2, 3, 8, 8})});
}

TEST(Script, ConditionsTakeNumbersInAnyNotation) {
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.layer_norm(torch.elu(torch.matmul(x, self.w)), [6])\n",
      {{"w", torch::randn({6, 6})}});
  const auto float_calls = [&](const char* op, const char* argument, const char* value) {
    ScriptReport report;
    convert_hybrid_block(net,
                         {.fp32_ops = std::vector<std::string>{},
                          .conditional_fp32_ops = {{{op, argument, {value}}}}},
                         &report);
    return report.float_calls;
  };
  EXPECT_EQ(float_calls("elu", "alpha", "1"), 1);
  EXPECT_EQ(float_calls("elu", "alpha", "1.0"), 1);
  EXPECT_EQ(float_calls("elu", "alpha", "2"), 0);
  EXPECT_EQ(float_calls("layer_norm", "eps", "1e-05"), 1);
  EXPECT_EQ(float_calls("layer_norm", "eps", "0.00001"), 1);
  EXPECT_EQ(float_calls("layer_norm", "cudnn_enable", "True"), 1);
}

TEST(Script, NumbersThatTheLowTypeDoesNotHoldKeepTheOperatorFloat) {
  const auto net = scripted(
      "def forward(self, x: Tensor, m: Tensor):\n"
      "  s = torch.matmul(x, self.w)\n"
      "  s.masked_fill_(m, -1e9)\n"
      "  return torch.softmax(torch.matmul(x, self.w).masked_fill(m, -1e9), 1) + \\\n"
      "      torch.softmax(s, 1)\n",
      {{"w", torch::randn({6, 6})}});
  const at::Tensor x = torch::randn({4, 6});
  const at::Tensor mask = torch::randn({4, 6}) > 0;
  mask[0] = true;
  const auto low = convert_hybrid_block(net);
  EXPECT_LT(difference(run(low, {x, mask}), run(net, {x, mask})), 0.01);
}

TEST(Script, TiedWeightsAreLowTogetherOrNotAtAll) {
  const at::Tensor shared = torch::randn({6, 6});
  const auto net = scripted(
      "def forward(self, x: Tensor, i: Tensor):\n"
      "  return torch.matmul(x, self.head) + torch.embedding(self.table, i)\n",
      {{"head", shared}, {"table", shared}});
  const auto low = convert_hybrid_block(net, {.cast_optional_params = true, .freeze = false});
  EXPECT_EQ(parameter(low, "head").scalar_type(), at::kFloat);
  EXPECT_EQ(parameter(low, "head").data_ptr(), parameter(low, "table").data_ptr());
}

TEST(Script, BuffersThatForwardWritesKeepTheirTypes) {
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  y = torch.matmul(x, self.w)\n"
      "  self.last = y\n"
      "  self.count += 1\n"
      "  return y + self.last\n",
      {{"w", torch::randn({6, 6})}}, {},
      {{"last", torch::zeros({4, 6})}, {"count", torch::zeros({1})}});
  const at::Tensor x = torch::randn({4, 6});
  torch::jit::Module low = convert_hybrid_block(net, {.freeze = false});
  for (int i = 0; i < 2; ++i) low.forward({x});
  EXPECT_EQ(parameter(low, "last").scalar_type(), at::kFloat);
  EXPECT_EQ(parameter(low, "count").item<float>(), 2);
  EXPECT_EQ(parameter(net, "count").item<float>(), 0);
  EXPECT_EQ(parameter(net, "last").abs().sum().item<float>(), 0);
}

TEST(Script, BatchNormalizationsBecomePartOfTheConvolutionOnRequest) {
  torch::manual_seed(13);
  const auto net = conv_net();
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  for (const bool freeze : {false, true}) {
    ScriptReport report;
    const auto low =
        convert_hybrid_block(net, {.fold_batch_norm = true, .freeze = freeze}, &report);
    EXPECT_EQ(report.folded_batch_norms, 1);
    EXPECT_EQ(count_nodes(low, "aten::batch_norm"), 0);
    EXPECT_LT(difference(run(low, {x}), run(net, {x})), 0.01);
    EXPECT_EQ(count_nodes(convert_hybrid_block(net, {.freeze = freeze}), "aten::batch_norm"), 1);
  }
}

TEST(Script, InputsToCheckWithAreRunAndTheErrorIsReported) {
  torch::manual_seed(14);
  const auto net = conv_net();
  ScriptReport report;
  convert_hybrid_block(net, {.check_with = Examples{torch::randn({2, 3, 8, 8})}}, &report);
  ASSERT_TRUE(report.error.has_value());
  EXPECT_GT(*report.error, 0);
  EXPECT_LT(*report.error, 0.01);
  const ScriptOptions strict{.check_with = Examples{torch::randn({2, 3, 8, 8})},
                             .check_tolerance = 1e-7};
  EXPECT_THROW(convert_hybrid_block(net, strict), Error);
  EXPECT_THROW(convert_hybrid_block(net, {.check_with = Examples{torch::randn({2, 5, 8, 8})}}),
               Error);
}

TEST(Script, TheReportSaysWhatBecameLowAndWhy) {
  ScriptReport report;
  convert_hybrid_block(conv_net(), {}, &report);
  EXPECT_EQ(report.low_calls, 3);
  EXPECT_EQ(report.float_calls, 1);
  const std::string text = report.to_text();
  EXPECT_THAT(text, HasSubstr("2 x aten::conv2d (conv0, conv1): a convolution is a sum"));
  EXPECT_THAT(text, HasSubstr("float  1 x aten::softmax.int"));
  EXPECT_THAT(report.to_json(), HasSubstr("\"operator\": \"aten::conv2d\""));
}

TEST(Script, WrongOptionsAreOneClearError) {
  const auto net = conv_net();
  const auto message = [&](const ScriptOptions& options) {
    return message_of([&] { convert_hybrid_block(net, options); });
  };
  EXPECT_THAT(message({.target_dtype = at::kFloat}), HasSubstr("expected float16"));
  EXPECT_THAT(message({.target_dtype_ops = {{"conv2dd"}}}), HasSubstr("conv2d"));
  EXPECT_THAT(message({.target_dtype_ops = {{"conv2d"}}, .fp32_ops = {{"conv2d"}}}),
              HasSubstr("each operator on one list alone"));
  EXPECT_THAT(message({.fp32_ops = {{"+tanh", "relu"}}}), HasSubstr("mixes names"));
  EXPECT_THAT(message({.excluded_sym_names = {"nowhere"}}),
              HasSubstr("'nowhere' names no module and no parameter"));
  EXPECT_THAT(message({.conditional_fp32_ops = {{{"gelu", "slope", {"1"}}}}}),
              HasSubstr("no argument 'slope'"));
}

TEST(Script, ATraceInTrainingModeIsRefusedByName) {
  const auto net = scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.dropout(torch.matmul(x, x), 0.5, True)\n");
  EXPECT_THAT(message_of([&] { convert_hybrid_block(net); }),
              HasSubstr("aten::dropout was traced in training mode"));
}

struct PlainNetImpl : torch::nn::Module {
  PlainNetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("attention", attention);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = torch::relu(norm(conv(x))).flatten(2).permute({2, 0, 1});
    const at::Tensor z = std::get<0>(attention(y, y, y));
    return torch::log_softmax(head((y + z).mean(0)), 1);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 8, 3).padding(1)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::MultiheadAttention attention{8, 2};
  torch::nn::Linear head{8, 5};
};
TORCH_MODULE(PlainNet);

TEST(Script, AnEagerNetworkIsTracedAndConverted) {
  torch::manual_seed(15);
  PlainNet net;
  net->train();
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  const auto traced = trace(net, {x});
  for (const ScriptCase& one : kScriptCases) {
    ScriptReport report;
    const auto low = convert_hybrid_block(net, {x}, options_of(one), &report);
    EXPECT_EQ(report.guarded_casts, 0);
    EXPECT_LT(difference(run(low, {x}), run(traced, {x})), tolerance_of(one.low));
  }
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 0);
  for (const at::Tensor& each : net->parameters()) EXPECT_EQ(each.scalar_type(), at::kFloat);
}

TEST(Script, AnEagerNetworksPartsAreNamedByTheirParameters) {
  torch::manual_seed(16);
  PlainNet net;
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  const auto low = convert_hybrid_block(
      net, {x},
      {.excluded_sym_names = {"attention"}, .cast_optional_params = true, .freeze = false});
  EXPECT_EQ(parameter(low, "conv.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(parameter(low, "head.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(parameter(low, "attention.in_proj_weight").scalar_type(), at::kFloat);
  EXPECT_EQ(parameter(low, "attention.out_proj.weight").scalar_type(), at::kFloat);
  ScriptReport report;
  convert_hybrid_block(net, {x}, {.fold_batch_norm = true}, &report);
  EXPECT_EQ(report.folded_batch_norms, 1);
}

TEST(Script, LinearMeansWhatTheModuleComputes) {
  torch::manual_seed(17);
  PlainNet net;
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  const auto low = convert_hybrid_block(net, {x},
                                        {.target_dtype_ops = {{"conv2d"}},
                                         .fp32_ops = {{"softmax", "linear"}},
                                         .cast_optional_params = true,
                                         .freeze = false});
  EXPECT_EQ(parameter(low, "conv.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(parameter(low, "head.bias").scalar_type(), at::kFloat);
}

TEST(Script, FilesAreConvertedWholeOrNotAtAll) {
  const auto folder = std::filesystem::temp_directory_path() / "mezzo_script_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  conv_net().save((folder / "net.pt").string());
  const ScriptReport report = convert_script(folder / "net.pt", folder / "low.pt", {});
  EXPECT_EQ(report.low_calls, 3);
  torch::jit::Module low = torch::jit::load((folder / "low.pt").string());
  EXPECT_EQ(low.forward({torch::randn({1, 3, 8, 8})}).toTensor().scalar_type(), at::kFloat);
  std::ofstream(folder / "bad.pt") << "no archive";
  EXPECT_THAT(message_of([&] { convert_script(folder / "bad.pt", folder / "out.pt"); }),
              HasSubstr("bad.pt' is no TorchScript archive"));
  EXPECT_THAT(message_of([&] { convert_script(folder / "none.pt", folder / "out.pt"); }),
              HasSubstr("cannot read"));
  EXPECT_THAT(message_of([&] { convert_script(folder / "net.pt", folder / "net.pt"); }),
              HasSubstr("is the input"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.pt"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mezzo::deploy
