#include "deploy/script/check.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/raise.h"
#include "deploy/script/inlined.h"
#include "deploy/values/collect_tensors.h"

namespace mezzo::deploy::script {
namespace {

constexpr double kNoMatch = std::numeric_limits<double>::infinity();

double error_of(const at::Tensor& original, const at::Tensor& converted) {
  if (original.sizes() != converted.sizes() || original.scalar_type() != converted.scalar_type())
    return kNoMatch;
  if (original.numel() == 0 || original.is_complex()) return 0;
  const at::Tensor wanted = original.to(at::kDouble);
  const at::Tensor got = converted.to(at::kDouble);
  const at::Tensor counts = at::isfinite(wanted);
  if (!at::isfinite(got).logical_or(counts.logical_not()).all().item<bool>()) return kNoMatch;
  const at::Tensor nothing = at::zeros_like(wanted);
  const at::Tensor finite = at::where(counts, wanted, nothing);
  const double range = (finite.max() - finite.min()).item<double>();
  const double size = std::max(range, finite.abs().max().item<double>());
  const double error = at::where(counts, got - wanted, nothing).abs().max().item<double>();
  return size == 0 ? error : error / size;
}

c10::IValue run_copy(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs) {
  // A module may write to its buffers and its inputs.
  std::vector<c10::IValue> copies;
  copies.reserve(inputs.size());
  for (const c10::IValue& input : inputs) copies.push_back(input.deepcopy());
  torch::jit::Module copy = module.deepcopy();
  if (copy.hasattr("training")) copy.eval();
  return copy.forward(std::move(copies));
}

}  // namespace

void refuse_training(torch::jit::Graph& graph, const char* where) {
  static constexpr std::array<std::string_view, 5> kDropouts{
      "aten::dropout", "aten::dropout_", "aten::feature_dropout", "aten::alpha_dropout",
      "aten::feature_alpha_dropout"};
  for_each_node(graph.block(), [&](torch::jit::Node* node) {
    const std::string_view name = node->kind().toQualString();
    const bool is_dropout = std::ranges::find(kDropouts, name) != kDropouts.end();
    const char* argument = is_dropout ? "train" : nullptr;
    if (name == "aten::batch_norm") argument = "training";
    if (argument == nullptr) return;
    const auto value = torch::jit::toIValue(node->namedInput(argument));
    if (!value || !value->isBool() || !value->toBool()) return;
    // Without statistics a normalization takes those of its input in every mode.
    if (name == "aten::batch_norm") {
      const auto mean = torch::jit::toIValue(node->namedInput("running_mean"));
      if (mean && mean->isNone()) return;
    }
    const std::string place = module_of(*node);
    raise<UnsupportedError>(where, name, place.empty() ? "" : " of '" + place + "'",
                            " was traced in training mode, which is part of the graph now; "
                            "expected a trace in evaluation mode");
  });
}

double error_between(const torch::jit::Module& original, const torch::jit::Module& converted,
                     const std::vector<c10::IValue>& inputs) {
  const c10::NoGradGuard no_gradients;
  std::vector<at::Tensor> wanted;
  std::vector<at::Tensor> got;
  collect_tensors(run_copy(original, inputs), &wanted);
  collect_tensors(run_copy(converted, inputs), &got);
  if (wanted.size() != got.size()) return kNoMatch;
  double error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    error = std::max(error, error_of(wanted[i], got[i]));
  return error;
}

}  // namespace mezzo::deploy::script
