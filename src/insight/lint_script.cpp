#include "mezzo/insight_lint_script.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "insight/epsilons.h"
#include "insight/lint_tensors.h"
#include "insight/unobserved.h"

namespace mezzo::insight {

namespace {

std::string script_operator(const torch::jit::Node& node) {
  const std::string_view name = node.kind().toQualString();
  return std::string(name.starts_with("aten::") ? name.substr(6) : name);
}

/// Numbers in the code of a module: masks beyond float16, epsilons below it.
class ScriptNumbers {
 public:
  void visit(const torch::jit::Block& block) {
    for (const torch::jit::Node* node : block.nodes()) {
      for (const torch::jit::Block* inner : node->blocks()) visit(*inner);
      if (std::string_view(node->kind().toQualString()).starts_with("aten::")) look_at(*node);
    }
  }

  void report(std::vector<Finding>& into) const {
    for (const auto& [name, number] : masks_) {
      std::ostringstream evidence;
      evidence << "it is given " << number
               << ", beyond float16 (O1, O2, O3): it becomes an infinity, or the operator runs in "
                  "float";
      into.push_back(
          {"warning", "mask", name, evidence.str(), "mask with -infinity in float, or with -6e4"});
    }
    for (const auto& [name, eps] : epsilons_) {
      std::ostringstream evidence;
      evidence << "eps = " << eps << " is zero in float16, and a constant row divides by it";
      into.push_back({"warning", "epsilon", name, evidence.str(), "raise eps to 1e-5"});
    }
    report_epsilons(uses_, into);
  }

 private:
  void look_at(const torch::jit::Node& node) {
    const std::string name = script_operator(node);
    const bool is_norm = name.find("norm") != std::string::npos;
    for (const torch::jit::Value* input : node.inputs()) {
      const auto constant = torch::jit::toIValue(input);
      if (!constant || !constant->isDouble()) continue;
      const double number = constant->toDouble();
      if (std::isfinite(number) && std::fabs(number) > kLargestInHalf) masks_.emplace(name, number);
      if (is_norm && number > 0 && number < kZeroInHalf) epsilons_.emplace(name, number);
    }
    if (epsilon_part(name) != EpsilonPart::kGives) return;
    for (std::size_t i = 0; i < numbers_in(name, node.inputs().size()); ++i) {
      const auto number = constant_number(*node.inputs()[i]);
      if (!number || !is_epsilon(std::fabs(*number))) continue;
      std::set<const torch::jit::Value*> seen;
      follow(*node.outputs().front(), {name, std::fabs(*number), {}}, seen);
    }
  }

  static std::optional<double> constant_number(const torch::jit::Value& value) {
    const auto constant = torch::jit::toIValue(&value);
    if (!constant) return std::nullopt;
    if (constant->isDouble()) return constant->toDouble();
    if (constant->isInt()) return static_cast<double>(constant->toInt());
    if (!constant->isTensor() || constant->toTensor().numel() != 1) return std::nullopt;
    return constant->toTensor().item<double>();
  }

  /// Through what keeps the number to what relies on it.
  void follow(const torch::jit::Value& value, const EpsilonUse& from,
              std::set<const torch::jit::Value*>& seen) {
    if (!seen.insert(&value).second) return;
    for (const torch::jit::Use& use : value.uses()) {
      const std::string name = script_operator(*use.user);
      const EpsilonPart part = epsilon_part(name);
      if (part == EpsilonPart::kKeeps) follow(*use.user->outputs().front(), from, seen);
      if (part != EpsilonPart::kSpends || use.offset != spent_argument(name)) continue;
      const std::size_t other = deciding_argument(name);
      const auto deciding = other < use.user->inputs().size()
                                ? constant_number(*use.user->inputs()[other])
                                : std::nullopt;
      if (fails_at(name, from.eps, deciding)) uses_.insert({from.giver, from.eps, name});
    }
  }

  std::set<EpsilonUse> uses_;
  std::set<std::pair<std::string, double>> masks_, epsilons_;
};

/// Statistics of batch norms stay float at the levels that keep batch norms.
bool is_statistic(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

}  // namespace

std::vector<Finding> lint_script(const torch::jit::Module& module) {
  std::vector<Finding> found;
  if (const auto forward = module.find_method("forward")) {
    const auto graph = forward->graph()->copy();
    torch::jit::Inline(*graph);
    ScriptNumbers numbers;
    numbers.visit(*graph->block());
    numbers.report(found);
  }
  const Unobserved unobserved;
  for (const auto& parameter : module.named_parameters())
    check_range(parameter.name, parameter.value, found);
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value.scalar_type() == at::kFloat && !is_statistic(buffer.name))
      note_buffer(buffer.name, found);
  }
  for (const auto& parameter : module.named_parameters())
    check_matrix(parameter.name, parameter.value, found);
  sort_by_severity(found);
  return found;
}

}  // namespace mezzo::insight
