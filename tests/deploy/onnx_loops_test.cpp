// Control flow that follows from inputs, and sizes that follow from values, leave as ONNX has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "deploy/files/torchvision.h"
#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"
#include "run_file.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

using ::testing::HasSubstr;
using Inputs = std::vector<at::Tensor>;

class OnnxLoops : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  void TearDown() override { std::filesystem::remove(file_); }

  std::string export_message(const torch::jit::Module& module, const Inputs& examples,
                             const DynamicAxes& axes = {}) const {
    OnnxOptions options = judged_options();
    options.dynamic_axes = axes;
    return message_of([&] { export_onnx(module, examples, file_, options); });
  }

  /// Exports with the examples and compares file and module on all of these inputs.
  void expect_follows(torch::jit::Module module, const Inputs& examples,
                      const std::vector<Inputs>& others, const DynamicAxes& axes = {}) const {
    ASSERT_EQ(export_message(module, examples, axes), "no error");
    const auto& arguments = module.get_method("forward").function().getSchema().arguments();
    std::vector<std::string> names;
    for (std::size_t i = 1; i < arguments.size(); ++i) names.push_back(arguments[i].name());
    for (const Inputs& inputs : others) {
      std::vector<c10::IValue> values;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const bool is_number = arguments[i + 1].type()->kind() == c10::TypeKind::IntType;
        values.push_back(is_number ? c10::IValue(inputs[i].item<std::int64_t>())
                                   : c10::IValue(inputs[i].clone()));
      }
      EXPECT_LT(error_of_file(file_, names, inputs, module.forward(values)), 1e-4) << inputs[0];
    }
  }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_loops_" + std::to_string(getpid()) + ".onnx");
};

at::Tensor count(std::int64_t number) {
  return torch::tensor(number);
}

TEST_F(OnnxLoops, AsManyTurnsAsANumberSays) {
  const auto module = scripted(
      "def forward(self, x: Tensor, n: int):\n"
      "  for i in range(n):\n"
      "    x = x * 0.5 + float(i)\n"
      "  return x\n");
  const at::Tensor x = torch::randn({2, 3});
  expect_follows(module, {x, count(3)}, {{x, count(0)}, {x, count(1)}, {x, count(7)}});
}

TEST_F(OnnxLoops, UntilValuesSaySo) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  turns = 0\n"
      "  while bool(x.abs().max() > 1):\n"
      "    x = x / 2\n"
      "    turns += 1\n"
      "  return x, turns\n");
  const at::Tensor x = torch::tensor({3.0f, -9.0f});
  expect_follows(module, {x}, {{x * 100}, {x * 0.01}});
}

TEST_F(OnnxLoops, StepsOfASequenceAreStacked) {
  auto module = scripted(
      "def forward(self, x: Tensor, h: Tensor):\n"
      "  outputs = []\n"
      "  for i in range(x.size(0)):\n"
      "    h = torch.tanh(torch.linear(x[i], self.w) + torch.linear(h, self.u))\n"
      "    outputs.append(h)\n"
      "  return torch.stack(outputs), torch.cat(outputs, 1), outputs[-1], len(outputs)\n",
      {{"w", torch::randn({5, 4}) * 0.3}, {"u", torch::randn({5, 5}) * 0.3}});
  const at::Tensor h = torch::zeros({2, 5});
  expect_follows(module, {torch::randn({3, 2, 4}), h},
                 {{torch::randn({1, 2, 4}), h}, {torch::randn({9, 2, 4}), h}},
                 {{"x", {{0, "time"}}}});
}

TEST_F(OnnxLoops, ASequenceIsTranslatedWordByWord) {
  // Greedy decoding: it ends when every sentence has ended, or after a number of words.
  auto module = scripted(R"(
def forward(self, source: Tensor, most: int):
  state = (torch.tanh(torch.linear(source.mean(1), self.enter)), torch.zeros_like(source[:, 0]))
  word = torch.zeros([source.size(0)], dtype=4)
  ended = word > 0
  words = [word]
  turn = 0
  while turn < most and not bool(ended.all()):
    h, memory = state
    memory = memory + torch.embedding(self.words, word)
    h = torch.tanh(torch.linear(h, self.turn) + memory)
    word = torch.argmax(torch.linear(h, self.leave), 1)
    words.append(word)
    ended = ended | (word == 3)
    state = (h, memory)
    turn += 1
  return torch.stack(words, 1), state[0]
)",
                         {{"enter", torch::randn({6, 6})},
                          {"words", torch::randn({8, 6})},
                          {"turn", torch::randn({6, 6})},
                          {"leave", torch::randn({8, 6})}});
  std::vector<Inputs> others;
  for (const std::int64_t most : {1, 4, 12})
    others.push_back({torch::randn({3, most + 1, 6}) * 3, count(most)});
  expect_follows(module, {torch::randn({2, 4, 6}), count(5)}, others,
                 {{"source", {{0, "batch"}, {1, "time"}}}});
}

TEST_F(OnnxLoops, TensorsThatALoopFillsInPlace) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  out = torch.zeros_like(x)\n"
      "  sum = torch.zeros_like(x[0])\n"
      "  for i in range(x.size(0)):\n"
      "    sum += x[i]\n"
      "    out[i] = sum * 2\n"
      "  return out, sum\n");
  expect_follows(module, {torch::randn({3, 2})}, {{torch::randn({1, 2})}, {torch::randn({6, 2})}},
                 {{"x", {{0, "time"}}}});
}

TEST_F(OnnxLoops, SizesThatChangeFromTurnToTurn) {
  const auto module = scripted(
      "def forward(self, x: Tensor, n: int):\n"
      "  cache = x[:1]\n"
      "  for i in range(n):\n"
      "    cache = torch.cat([cache, cache.sum(0, keepdim=True)])\n"
      "  return cache.reshape(-1, 1) + 1\n");
  const at::Tensor x = torch::randn({2, 3});
  expect_follows(module, {x, count(2)}, {{x, count(1)}, {x, count(5)}});
}

TEST_F(OnnxLoops, LoopsInLoopsAndBranchesInLoops) {
  const auto module = scripted(
      "def forward(self, x: Tensor, n: int):\n"
      "  for i in range(n):\n"
      "    for j in range(i):\n"
      "      x = x + float(j)\n"
      "    if bool(x.sum() > 4):\n"
      "      x = x / 3\n"
      "    else:\n"
      "      x = x * 2\n"
      "  return x\n");
  const at::Tensor x = torch::randn({3});
  expect_follows(module, {x, count(3)}, {{x, count(1)}, {x + 5, count(6)}});
}

TEST_F(OnnxLoops, BranchesThatWriteInPlaceAndGiveTuples) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  y = x.clone()\n"
      "  if bool(x.sum() > 0):\n"
      "    y[0] = 5\n"
      "    pair = (x + 1, x * 2)\n"
      "  else:\n"
      "    y.mul_(-1)\n"
      "    pair = (x - 1, x * 3)\n"
      "  return y, pair[0] + pair[1]\n");
  const at::Tensor x = torch::ones({2, 3});
  expect_follows(module, {x}, {{-x}, {x * 2}});
  expect_follows(module, {-x}, {{x}});
}

TEST_F(OnnxLoops, ChecksOfInputsAreLeftOut) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  assert bool(x.min() > -100), 'too small'\n"
      "  return torch.relu(x)\n");
  expect_follows(module, {torch::randn({3})}, {{torch::randn({3})}});
}

TEST_F(OnnxLoops, TextsOfChecksAreLeftOut) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  text = 'got {} rows of {}, {} in all, at most {}'.format(x.size(0), x.size(1), x.numel(), "
      "x.max())\n"
      "  assert x.size(1) == 2, text\n"
      "  return torch.relu(x)\n");
  expect_follows(module, {torch::randn({3, 2})}, {{torch::randn({5, 2})}}, {{"x", {{0, "rows"}}}});
}

TEST_F(OnnxLoops, WhatIsMissingToAMultiple) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  missing = (8 - (x.size(0) // 8) % 8) % 8\n"
      "  return torch.pad(x, [0, missing])\n");
  expect_follows(module, {torch::randn({96})}, {{torch::randn({128})}, {torch::randn({112})}},
                 {{"x", {{0, "n"}}}});
}

TEST_F(OnnxLoops, WarningsAreLeftOut) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  print('deprecated')\n"
      "  return torch.relu(x)\n");
  expect_follows(module, {torch::randn({3})}, {{torch::randn({3})}});
}

TEST_F(OnnxLoops, ArithmeticOnNumbers) {
  const auto module = scripted(
      "def forward(self, x: Tensor, n: int):\n"
      "  r = float(n) * 0.37\n"
      "  whole = [torch.floor(r), torch.ceil(r), n // 3, n % 3, min(n, 5), max(n, 5)]\n"
      "  real = [torch.sqrt(r), torch.exp(-r), torch.log(r), r % 0.3, abs(-r), n / 3, r ** 1.5]\n"
      "  return (torch.tensor(whole), torch.tensor(real), torch.tensor(r), torch.tensor(n > 4),\n"
      "          torch.tensor([[n, 2], [3, n]]), torch.tensor(real, dtype=3), x * r, "
      "r)\n");
  const at::Tensor x = torch::randn({2, 3});
  expect_follows(module, {x, count(3)}, {{x, count(1)}, {x, count(7)}, {x, count(100)}});
}

TEST_F(OnnxLoops, NumbersHaveTheDigitsOfAScript) {
  // 10 times the float next to 0.7 is less than 7, and rounds to it in float32.
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  return x[:int(torch.floor(float(x.size(0)) * float(self.scale)))]\n",
      {}, {}, {{"scale", torch::tensor(0.7f)}});
  const at::Tensor x = torch::randn({23});
  expect_follows(module, {x}, {{x.slice(0, 0, 10)}, {x}}, {{"x", {{0, "n"}}}});
}

TEST_F(OnnxLoops, TheShorterSideOfAnImage) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  shape = torch.tensor(x.size()[-2:])\n"
      "  scale = 32.0 / float(torch.min(shape))\n"
      "  sizes = [int(float(x.size(2)) * scale), int(float(x.size(3)) * scale)]\n"
      "  return torch.upsample_nearest2d(x, sizes)\n");
  const DynamicAxes sizes = {{"x", {{2, "height"}, {3, "width"}}}};
  const std::vector<Inputs> others = {{torch::randn({1, 2, 80, 48})},
                                      {torch::randn({1, 2, 48, 80})},
                                      {torch::randn({1, 2, 64, 64})}};
  expect_follows(module, {torch::randn({1, 2, 32, 40})}, others, sizes);
  expect_follows(module, {torch::randn({1, 2, 40, 40})}, others, sizes);
}

TEST_F(OnnxLoops, BranchesBesideTensorsThatWereExpanded) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  y = x.sum(0, keepdim=True).expand(3, -1)\n"
      "  z = x.clone()\n"
      "  if bool(x.sum() > 0):\n"
      "    z.add_(1)\n"
      "  else:\n"
      "    z.mul_(2)\n"
      "  return z + y\n");
  const at::Tensor x = torch::rand({3, 2});
  expect_follows(module, {x}, {{x}, {-x}});
}

TEST_F(OnnxLoops, BranchesThatSomeRunsCouldNotTake) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  kept = x[x > 0]\n"
      "  if kept.numel() == 0:\n"
      "    return torch.zeros([1])\n"
      "  else:\n"
      "    return kept.max().reshape(1) * 2\n");
  const at::Tensor x = torch::tensor({1.0f, -2.0f, -3.0f, -4.0f, -5.0f});
  expect_follows(module, {x}, {{x}, {-x}, {x - 9}}, {{"x", {{0, "n"}}}});
  expect_follows(module, {x - 9}, {{x}, {-x}, {x - 9}}, {{"x", {{0, "n"}}}});
}

TEST_F(OnnxLoops, WritesIntoSlicesWhoseEndsFollowFromSizes) {
  const auto module = scripted(
      "def forward(self, x: Tensor, y: Tensor):\n"
      "  padded = torch.zeros([2, x.size(0) + 3, 8])\n"
      "  padded[0][:x.size(0), 1:x.size(1) + 1].copy_(x)\n"
      "  padded[1][x.size(0) - y.size(0):x.size(0), :4].add_(y)\n"
      "  padded[:, -2:].mul_(2)\n"
      "  return padded + 1\n");
  const auto inputs = [](std::int64_t n, std::int64_t m) {
    return Inputs{torch::randn({n, m}), torch::randn({2, 4})};
  };
  expect_follows(module, inputs(4, 5), {inputs(4, 5), inputs(6, 3), inputs(2, 7)},
                 {{"x", {{0, "n"}, {1, "m"}}}});
}

TEST_F(OnnxLoops, ListsOfSizesAreCompared) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  if x.size() != [x.size(0), 2]:\n"
      "    x = x * 2\n"
      "  return torch.relu(x)\n");
  expect_follows(module, {torch::randn({3, 2})}, {{torch::randn({5, 2})}}, {{"x", {{0, "n"}}}});
}

TEST_F(OnnxLoops, LengthsThatFollowFromValues) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  picked = x[x[:, 0] > 0]\n"
      "  places = torch.nonzero(x > 0)\n"
      "  return (picked.reshape(-1, 1, x.size(1)) * picked.size(0), places.t(),\n"
      "          torch.masked_select(x, x > 0))\n");
  at::Tensor x = torch::tensor({{1.0f, -2.0f}, {-3.0f, 4.0f}, {5.0f, 6.0f}});
  expect_follows(module, {x}, {{-x}, {x.abs()}});
}

TEST_F(OnnxLoops, ValuesThatOccur) {
  const auto module = scripted(
      "def forward(self, x: Tensor):\n"
      "  values, places, counts = torch._unique2(x, True, True, True)\n"
      "  rows, row_places, row_counts = torch.unique_dim(x > 1, 0, True, True, True)\n"
      "  return values * 2, places, counts, rows, row_places, row_counts\n");
  const at::Tensor x = torch::randint(0, 4, {5, 2}, torch::kFloat);
  expect_follows(module, {x}, {{x}, {x * 0}, {torch::randint(0, 9, {5, 2}, torch::kFloat)}});
}

TEST_F(OnnxLoops, DetectorsKeepTheBestBoxes) {
  know_torchvision();
  auto module = scripted(R"(
def forward(self, image: Tensor, anchors: Tensor):
  features = torch.relu(torch.conv2d(image, self.conv, None, [2, 2], [1, 1]))
  boxes = anchors + torch.linear(features.mean([0, 2, 3]), self.move).reshape(-1, 4)
  scores = torch.sigmoid(torch.linear(features.mean([0, 2, 3]), self.score))
  good = scores > 0.3
  boxes, scores = boxes[good], scores[good]
  kept = vision.nms(boxes, scores, 0.4)
  boxes = boxes[kept]
  rois = torch.cat([torch.zeros([boxes.size(0), 1]), boxes], 1)
  parts = vision.roi_align(features, rois, 0.5, 3, 3, 2, True)
  return boxes, scores[kept], parts.flatten(1)
)",
                         {{"conv", torch::randn({4, 3, 3, 3}) * 0.3},
                          {"move", torch::randn({24, 4}) * 0.2},
                          {"score", torch::randn({6, 4})}},
                         {}, {}, std::make_shared<WithVision>());
  const at::Tensor corners = torch::rand({6, 2}) * 8;
  const at::Tensor anchors = torch::cat({corners, corners + 4 + torch::rand({6, 2}) * 4}, 1);
  std::vector<Inputs> others;
  for (int i = 0; i < 3; ++i) others.push_back({torch::randn({1, 3, 16, 20}) * 2, anchors});
  expect_follows(module, {torch::randn({1, 3, 16, 16}), anchors}, others,
                 {{"image", {{2, "height"}, {3, "width"}}}});
}

TEST_F(OnnxLoops, WhatAListCannotBeIsSaid) {
  const at::Tensor x = torch::randn({3});
  EXPECT_THAT(export_message(scripted("def forward(self, x: Tensor, n: int):\n"
                                      "  all = [x]\n"
                                      "  for i in range(n):\n"
                                      "    all.append(all[-1] * 2)\n"
                                      "  return torch.stack(all)\n"),
                             {x, count(2)}),
              HasSubstr("carry what is read in a variable"));
  EXPECT_THAT(export_message(scripted("def forward(self, x: Tensor, n: int):\n"
                                      "  all = [x]\n"
                                      "  for i in range(n):\n"
                                      "    all.append(x)\n"
                                      "  return all\n"),
                             {x, count(2)}),
              HasSubstr("stack it"));
}

/// The refusal says what to write, and what it says can be exported.
TEST_F(OnnxLoops, AListThatGrowsInABranchIsSelectedBehindTheLoop) {
  const auto growing = [](const std::string& turns) {
    return scripted(
        "def forward(self, x: Tensor):\n"
        "  values = [x[0]]\n"
        "  for i in range(" +
        turns +
        "):\n"
        "    if bool(x[i].sum() > 0):\n"
        "      values.append(x[i] * 2)\n"
        "  return torch.stack(values)\n");
  };
  const auto selecting = [](const std::string& turns) {
    return scripted(
        "def forward(self, x: Tensor):\n"
        "  values = [x[0]]\n"
        "  counts = [x[0].sum() == x[0].sum()]\n"
        "  for i in range(" +
        turns +
        "):\n"
        "    values.append(x[i] * 2)\n"
        "    counts.append(x[i].sum() > 0)\n"
        "  return torch.stack(values)[torch.stack(counts)]\n");
  };
  const at::Tensor all = torch::rand({4, 3}), some = torch::randn({4, 3}) - 0.2;
  const DynamicAxes time = {{"x", {{0, "time"}}}};
  for (const at::Tensor& x : {all, some, -all}) {
    EXPECT_THAT(export_message(growing("x.size(0)"), {x}, time),
                HasSubstr("torch.stack(values)[torch.stack(counts)]"));
    EXPECT_THAT(export_message(growing("4"), {x}),
                HasSubstr("torch.stack(values)[torch.stack(counts)]"));
    EXPECT_FALSE(std::filesystem::exists(file_));
  }
  expect_follows(selecting("x.size(0)"), {some},
                 {{all}, {-all}, {torch::randn({9, 3})}, {torch::rand({1, 3})}}, time);
  expect_follows(selecting("4"), {some}, {{all}, {-all}});
}

TEST_F(OnnxLoops, ModulesAreAsTheyWere) {
  auto child = scripted(
      "def forward(self, x: Tensor):\n"
      "  self.seen.add_(1)\n"
      "  return torch.dropout(x, 0.5, self.training) + self.seen\n",
      {}, {}, {{"seen", torch::zeros({1})}});
  auto module = scripted("def forward(self, x: Tensor):\n  return self.child.forward(x)\n", {},
                         {{"child", child}});
  module.train();
  const at::Tensor x = torch::randn({3});
  ASSERT_EQ(export_message(module, {x}), "no error");
  EXPECT_TRUE(module.attr("child").toModule().is_training());
  EXPECT_EQ(module.attr("child").toModule().attr("seen").toTensor().item<float>(), 0);
  module.eval();
  EXPECT_LT(error_of_file(file_, {"x"}, {x}, module.forward({x})), 1e-6);
}

TEST_F(OnnxLoops, TracesInTrainingModeAreRefusedByName) {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Dropout(0.5));
  const auto traced = trace(net, {torch::randn({2, 3})}, {.train = true});
  EXPECT_THAT(export_message(traced, {torch::randn({2, 3})}),
              HasSubstr("aten::dropout was traced in training mode"));
}

}  // namespace
}  // namespace mezzo::deploy
