// Objects of a script's own classes, and attributes that a call writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"
#include "run_file.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

using ::testing::HasSubstr;

constexpr const char* kClass = R"(
class Scaled:
  def __init__(self, image, scale):
    # type: (Tensor, float) -> None
    self.image = image
    self.scale = scale
  def value(self):
    # type: () -> Tensor
    return torch.mul(self.image, self.scale)
)";

/// Knows the class by its name.
struct WithClass : torch::jit::NativeResolver {
  explicit WithClass(c10::ClassTypePtr type) : scaled(std::move(type)) {}
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& function,
      const torch::jit::SourceRange& at) override {
    if (name == "Scaled") return std::make_shared<torch::jit::ClassValue>(scaled);
    return NativeResolver::resolveValue(name, function, at);
  }
  c10::ClassTypePtr scaled;
};

torch::jit::Module with_objects(const std::string& source) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto text = std::make_shared<torch::jit::Source>(kClass);
  const std::vector<c10::IValue> constants;
  torch::jit::SourceImporter importer(
      unit, &constants, [&](const std::string&) { return text; }, 2);
  importer.loadType(c10::QualifiedName("__torch__.Scaled"));
  torch::jit::Module module("Net", unit);
  module.register_attribute("training", c10::BoolType::get(), false);
  module.define(source, std::make_shared<WithClass>(unit->get_class("__torch__.Scaled")));
  return module;
}

class OnnxObjects : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  void TearDown() override { std::filesystem::remove(file_); }

  std::string export_message(const torch::jit::Module& module) const {
    OnnxOptions options = judged_options();
    options.dynamic_axes = {{"x", {{0, "n"}}}};
    return message_of([&] { export_onnx(module, {torch::randn({4, 2})}, file_, options); });
  }

  void expect_follows(torch::jit::Module module) const {
    ASSERT_EQ(export_message(module), "no error");
    for (const std::int64_t rows : {1, 4, 9}) {
      const at::Tensor x = torch::randn({rows, 2});
      EXPECT_LT(error_of_file(file_, {"x"}, {x}, module.forward({x})), 1e-5) << rows;
    }
  }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_objects_" + std::to_string(getpid()) + ".onnx");
};

TEST_F(OnnxObjects, HaveAttributesAndMethods) {
  expect_follows(
      with_objects("def forward(self, x: Tensor):\n"
                   "  made = Scaled(torch.relu(x), float(x.size(0)))\n"
                   "  other = Scaled(x, 3.0)\n"
                   "  made.scale = made.scale * 2 + other.scale\n"
                   "  return made.value() + other.value()\n"));
}

TEST_F(OnnxObjects, GoThroughBranchesAndFixedLoops) {
  expect_follows(
      with_objects("def forward(self, x: Tensor):\n"
                   "  made = Scaled(x, 1.0)\n"
                   "  for i in range(3):\n"
                   "    made = Scaled(made.value(), float(i) + 0.5)\n"
                   "  y = made.image\n"
                   "  if bool(x.sum() > 0):\n"
                   "    y = y - made.value()\n"
                   "  return y\n"));
}

TEST_F(OnnxObjects, BranchesChangeElementsAndAttributes) {
  expect_follows(
      with_objects("def forward(self, x: Tensor):\n"
                   "  made = Scaled(x, 1.0)\n"
                   "  sizes = [1, 2, 3]\n"
                   "  found = {'a': x}\n"
                   "  if bool(x.sum() > 0):\n"
                   "    made.scale = 2.0\n"
                   "    sizes[1] = 7\n"
                   "    found['a'] = x * sizes[1]\n"
                   "  else:\n"
                   "    sizes[2] = x.size(0)\n"
                   "  return made.value() + sizes[0] + sizes[1] * 10 + sizes[2], found['a']\n"));
}

TEST_F(OnnxObjects, ShiftsOfARollFollowFromBranches) {
  expect_follows(
      scripted("def forward(self, x: Tensor):\n"
               "  shifts = [1, -1]\n"
               "  if x.size(0) <= 4:\n"
               "    shifts[0] = 0\n"
               "  if x.size(0) > 5:\n"
               "    shifts[1] = 7\n"
               "  if sum(shifts) > 0:\n"
               "    x = torch.roll(x, [-shifts[0], shifts[1]], [0, 1])\n"
               "  return x * 2\n"));
}

TEST_F(OnnxObjects, AListThatABranchMakesLongerIsRefused) {
  EXPECT_THAT(export_message(scripted("def forward(self, x: Tensor):\n"
                                      "  all = [x]\n"
                                      "  if bool(x.sum() > 0):\n"
                                      "    all.append(x)\n"
                                      "  return torch.cat(all)\n")),
              HasSubstr("how many elements a list has"));
}

TEST_F(OnnxObjects, ListsAreChangedInEveryWay) {
  expect_follows(
      scripted("def forward(self, x: Tensor):\n"
               "  all = [x, x * 2]\n"
               "  all.insert(0, x + 1)\n"
               "  all.insert(-1, x - 1)\n"
               "  all.extend([torch.relu(x), torch.abs(x)])\n"
               "  last = all.pop()\n"
               "  second = all.pop(1)\n"
               "  all.reverse()\n"
               "  all[1] = all[1] * 3\n"
               "  other = all.copy()\n"
               "  other.clear()\n"
               "  return torch.cat(all, 1), last, second, len(other)\n"));
}

TEST_F(OnnxObjects, DictionariesAreReadAndChanged) {
  expect_follows(
      scripted("def forward(self, x: Tensor):\n"
               "  found = {'a': x, 'b': x * 2}\n"
               "  found['c'] = x + 1\n"
               "  found.update({'b': torch.relu(x)})\n"
               "  kept = dict([('b', x - 1), ('d', torch.abs(x))])\n"
               "  parts = []\n"
               "  for name, value in found.items():\n"
               "    if name != 'a':\n"
               "      parts.append(value * kept.get('b', x) * kept.get(name, x))\n"
               "  return torch.cat(parts, 1), kept['d'], len(found)\n"));
}

/// A module with a number that calls write.
torch::jit::Module with_number(const std::string& source) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_attribute("kept", c10::FloatType::get(), 1.0);
  module.define(source);
  return module;
}

TEST_F(OnnxObjects, AttributesAreReadAsACallWroteThem) {
  const auto module = with_number(
      "def forward(self, x: Tensor):\n"
      "  self.kept = float(x.size(0)) * 0.5\n"
      "  return x * self.kept\n");
  expect_follows(module.clone());
  EXPECT_EQ(module.attr("kept").toDouble(), 1.0);
}

TEST_F(OnnxObjects, CallsThatDependOnEarlierOnesAreRefused) {
  const auto module = with_number(
      "def forward(self, x: Tensor):\n"
      "  self.kept = self.kept + 1\n"
      "  return x * self.kept\n");
  EXPECT_THAT(export_message(module), HasSubstr("when it is called again"));
  EXPECT_EQ(module.attr("kept").toDouble(), 1.0);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace mezzo::deploy
