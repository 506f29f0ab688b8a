// Sizes that follow from the values of tensors. A run of the examples shows one of them; an
// imagined run, where such results have another length, shows which sizes follow from it, and one
// where they are empty, what a module does then.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>

#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;

bool is_mask(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         (value.toTensor().scalar_type() == at::kBool ||
          value.toTensor().scalar_type() == at::kByte);
}

/// One element less along an axis, or one more if there are none to spare; with `empty`, none.
at::Tensor of_another_length(const at::Tensor& tensor, std::int64_t axis, bool empty) {
  if (tensor.dim() <= axis) return tensor;
  if (empty) return tensor.narrow(axis, 0, 0);
  const std::int64_t size = tensor.size(axis);
  if (size > 1) return tensor.narrow(axis, 0, size - 1);
  if (size == 1) return at::cat({tensor, tensor}, axis);
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(axis)] = 1;
  return at::zeros(sizes, tensor.options());
}

/// The axis of x[..., mask, ...] that has as many places as the mask has; -1: there is none, or
/// places of other kinds stand beside it.
std::int64_t axis_of_mask(const c10::IValue& indices) {
  std::int64_t axis = 0, found = -1;
  for (const c10::IValue& index : indices.toListRef()) {
    if (index.isTensor() && index.toTensor().defined()) {
      if (!is_mask(index) || found >= 0) return -1;
      found = axis;
    }
    ++axis;
  }
  return found;
}

}  // namespace

bool counts_values(const jit::Node& node) {
  static const std::set<std::string> kNames = {
      "aten::nonzero",    "aten::masked_select", "aten::nonzero_numpy",      "aten::argwhere",
      "torchvision::nms", "aten::_unique2",      "aten::unique_consecutive", "aten::unique_dim",
      "aten::index",      "aten::_unique",       "aten::repeat_interleave"};
  const std::string kind = node.kind().toQualString();
  return kNames.contains(kind) || node.kind() == c10::prim::Loop ||
         (kind == "aten::where" && node.inputs().size() == 1);
}

void imagine_lengths(const jit::Node& node, const jit::Stack& operands, bool empty,
                     std::vector<c10::IValue>* results) {
  const std::string kind = node.kind().toQualString();
  const auto shorten = [&](std::size_t i, std::int64_t axis) {
    c10::IValue& result = results->at(i);
    if (result.isTensor()) result = of_another_length(result.toTensor(), axis, empty);
  };
  if (kind == "aten::index") {
    const std::int64_t axis = axis_of_mask(operands.at(1));
    if (axis >= 0) shorten(0, axis);
  } else if (kind == "aten::repeat_interleave") {
    const bool by_tensor =
        operands.at(0).isTensor() && operands.size() > 1 && operands.at(1).isTensor();
    if (by_tensor && operands.size() > 2 && operands[2].isInt() && operands[2].toInt() >= 0)
      shorten(0, operands[2].toInt());
  } else if (results->at(0).isTensorList()) {
    c10::List<at::Tensor> shorter;
    for (const at::Tensor& each : results->at(0).toTensorVector())
      shorter.push_back(of_another_length(each, 0, empty));
    results->at(0) = shorter;
  } else if (kind == "aten::unique_dim" || node.kind() == c10::prim::Loop) {
    return;
  } else {
    shorten(0, 0);
    if (results->size() == 3) shorten(2, 0);  // the counts of unique values
  }
}

}  // namespace mezzo::deploy::detail
