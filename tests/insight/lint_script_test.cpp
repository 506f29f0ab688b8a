// lint_script() finds in TorchScript what lint() finds in networks.
#include "mezzo/insight_lint_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

namespace mezzo::insight {
namespace {

torch::jit::Module scripted(const std::string& forward) {
  torch::jit::Module module("net");
  module.register_parameter("weight", torch::ones({16, 10}), false);
  module.register_parameter("large", torch::full({8}, 1e6), false);
  module.register_buffer("table", torch::ones({8}));
  module.register_buffer("running_mean", torch::ones({8}));
  module.register_buffer("count", torch::ones({1}, at::kLong));
  module.define(forward);
  return module;
}

TEST(LintScript, FindsEachFaultOnce) {
  const auto module = scripted(R"(
    def forward(self, x):
      y = torch.layer_norm(x, [8], None, None, 1e-12)
      return y.masked_fill(y > 0.5, -1e9)
  )");
  std::vector<std::string> places;
  for (const Finding& each : lint_script(module)) {
    EXPECT_FALSE(each.evidence.empty()) << each.kind;
    EXPECT_FALSE(each.advice.empty()) << each.kind;
    places.push_back(each.severity + " " + each.kind + " " + each.where);
  }
  EXPECT_THAT(places, testing::ElementsAre("error range large", "warning mask masked_fill",
                                           "warning epsilon layer_norm", "warning buffer table",
                                           "info sizes weight"));
}

TEST(LintScript, FindsEpsilonsThatAreZeroInHalf) {
  const std::vector<std::pair<std::string, std::string>> useless{
      {"add", "x / (x.relu() + 1e-8)"},
      {"add", "x / (x.norm() + 1e-12).expand_as(x)"},
      {"add", "torch.log(torch.softmax(x, 1) + 1e-8)"},
      {"add", "torch.rsqrt(x.relu() + 1e-8)"},
      {"add", "(x.relu() + 1e-8) ** -0.5"},
      {"add", "torch.reciprocal(x.relu() + 1e-6)"},
      {"clamp_min", "x / torch.clamp_min(x, 1e-8)"},
      {"clamp", "torch.log(torch.clamp(x, 1e-8))"},
  };
  for (const auto& [giver, program] : useless) {
    torch::jit::Module module("net");
    module.define("def forward(self, x):\n  return " + program + "\n");
    const std::vector<Finding> found = lint_script(module);
    ASSERT_EQ(found.size(), 1U) << program;
    EXPECT_EQ(found[0].kind, "epsilon") << program;
    EXPECT_EQ(found[0].where, giver) << program;
  }
  for (const std::string program :
       {"x / (x.relu() + 1e-3)", "x + 1e-8", "(x + 1e-8) / 2", "torch.exp(x + 1e-8)",
        "torch.sqrt(x.relu() + 1e-6)", "(x + 1e-8) ** 2"}) {
    torch::jit::Module module("net");
    module.define("def forward(self, x):\n  return " + program + "\n");
    EXPECT_TRUE(lint_script(module).empty()) << program;
  }
}

TEST(LintScript, ASoundModuleHasNoFindings) {
  torch::jit::Module module("net");
  module.register_parameter("weight", torch::ones({16, 8}), false);
  module.define("def forward(self, x):\n  return torch.mm(x, self.weight.t())\n");
  EXPECT_TRUE(lint_script(module).empty());
}

}  // namespace
}  // namespace mezzo::insight
