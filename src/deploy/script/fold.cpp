#include "deploy/script/fold.h"

#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <map>
#include <optional>

#include "deploy/script/inlined.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Node;
using torch::jit::Value;

/// Reads of an attribute in all methods, by its path.
using ReadCounts = std::map<std::string, int>;

/// A tensor that a graph reads: an attribute, a constant, or None.
struct ReadTensor {
  at::Tensor tensor = {};
  std::optional<AttributePlace> place = {};
};

std::optional<ReadTensor> tensor_of(const Value* value, const torch::jit::Module& module) {
  if (const auto constant = torch::jit::toIValue(value)) {
    if (constant->isNone()) return ReadTensor{};
    if (constant->isTensor()) return ReadTensor{constant->toTensor(), {}};
    return std::nullopt;
  }
  auto place = attribute_of(value, module);
  if (!place) return std::nullopt;
  const c10::IValue content = place->value();
  if (content.isNone()) return ReadTensor{{}, std::move(place)};
  if (!content.isTensor()) return std::nullopt;
  return ReadTensor{content.toTensor(), std::move(place)};
}

bool is_convolution(const Node& node) {
  const std::string_view name = node.kind().toQualString();
  if (name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d") return true;
  if (name != "aten::_convolution") return false;
  const Value* const transposed = node.namedInput("transposed");
  const auto value = torch::jit::toIValue(transposed);
  return value && value->isBool() && !value->toBool();
}

/// Why a batch normalization stays; empty: it was folded.
class Folding {
 public:
  Folding(const torch::jit::Module& module, const ReadCounts& reads)
      : module_(module), reads_(reads) {}

  std::string fold(Node* norm) const {
    const auto training = torch::jit::toIValue(norm->namedInput("training"));
    const auto eps = torch::jit::toIValue(norm->namedInput("eps"));
    if (!training || training->toBool() || !eps) return "it may compute statistics of its input";
    Node* const conv = norm->input(0)->node();
    if (!is_convolution(*conv)) return "no convolution is before it";
    if (conv->output()->uses().size() != 1) return "something else reads the convolution";
    if (conv->owningBlock() != norm->owningBlock()) return "the convolution is in another branch";
    const auto weight = tensor_of(conv->namedInput("weight"), module_);
    const auto bias = tensor_of(conv->namedInput("bias"), module_);
    if (!weight || !bias || !weight->tensor.defined() || !is_single(*weight) || !is_single(*bias))
      return "the convolution's weights are computed, or read elsewhere";
    std::optional<ReadTensor> parts[4];
    const char* const names[] = {"weight", "bias", "running_mean", "running_var"};
    for (int i = 0; i < 4; ++i) {
      parts[i] = tensor_of(norm->namedInput(names[i]), module_);
      if (!parts[i] || (i > 1 && !parts[i]->tensor.defined())) return "its parameters are computed";
    }
    const at::Tensor mean = parts[2]->tensor.to(at::kDouble);
    at::Tensor scale = at::rsqrt(parts[3]->tensor.to(at::kDouble) + eps->toDouble());
    if (parts[0]->tensor.defined()) scale = scale * parts[0]->tensor.to(at::kDouble);
    at::Tensor shift = -mean;
    if (bias->tensor.defined()) shift = shift + bias->tensor.to(at::kDouble);
    shift = shift * scale;
    if (parts[1]->tensor.defined()) shift = shift + parts[1]->tensor.to(at::kDouble);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(weight->tensor.dim()), 1);
    sizes[0] = scale.size(0);
    const auto type = weight->tensor.scalar_type();
    put(conv, "weight", *weight,
        (weight->tensor.to(at::kDouble) * scale.reshape(sizes)).to(type).detach());
    put(conv, "bias", *bias, shift.to(type).detach());
    norm->output()->replaceAllUsesWith(conv->output());
    norm->destroy();
    return {};
  }

 private:
  bool is_single(const ReadTensor& read) const {
    if (!read.place) return true;
    const auto found = reads_.find(read.place->path);
    return found == reads_.end() || found->second == 1;
  }

  static void put(Node* conv, const char* name, const ReadTensor& before, at::Tensor now) {
    if (before.place && before.tensor.defined()) {
      now.set_requires_grad(before.tensor.requires_grad());
      before.place->object->setAttr(before.place->name, std::move(now));
      return;
    }
    const auto index = conv->schema().argumentIndexWithName(name);
    const torch::jit::WithInsertPoint here(conv);
    conv->replaceInput(static_cast<std::size_t>(index.value()),
                       conv->owningGraph()->insertConstant(std::move(now)));
  }

  const torch::jit::Module& module_;
  const ReadCounts& reads_;
};

}  // namespace

std::int64_t fold_batch_norms(std::vector<ScriptMethod>& methods, const torch::jit::Module& module,
                              std::vector<std::string>& warnings) {
  ReadCounts reads;
  for (const ScriptMethod& method : methods) {
    for_each_node(method.graph->block(), [&](Node* node) {
      if (node->kind() != c10::prim::GetAttr) return;
      if (const auto place = attribute_of(node->output(), module)) ++reads[place->path];
    });
    // Whatever a method writes is no constant.
    for (const std::string& path : method.written) reads[path] += 2;
  }
  std::int64_t folded = 0;
  const Folding folding(module, reads);
  for (ScriptMethod& method : methods) {
    for_each_node(method.graph->block(), [&](Node* node) {
      if (node->kind() != c10::aten::batch_norm) return;
      const std::string place = module_of(*node);
      const std::string why = folding.fold(node);
      if (why.empty()) {
        ++folded;
      } else {
        warnings.push_back("a batch normalization" + (place.empty() ? "" : " of '" + place + "'") +
                           " is not folded: " + why);
      }
    });
    torch::jit::EliminateDeadCode(method.graph);
  }
  return folded;
}

}  // namespace mezzo::deploy::script
