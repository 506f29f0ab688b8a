#include "deploy/failed_run.h"

#include "deploy/files/script_file.h"
#include "deploy/recording.h"
#include "deploy/values/sizes_text.h"

namespace mezzo::deploy {
namespace {

namespace jit = torch::jit;

/// The tensor's type and sizes, as far as the record shows them; empty for other values.
std::string text_of_operand(const Recording& recording, const jit::Module& mirror,
                            const jit::Value* value) {
  const auto parameter = recording.parameters.find(value);
  if (parameter != recording.parameters.end()) {
    for (const auto& attribute : mirror.named_attributes()) {
      if (attribute.name == parameter->second && attribute.value.isTensor() &&
          attribute.value.toTensor().defined())
        return text_of_sizes(attribute.value.toTensor().scalar_type(),
                             attribute.value.toTensor().sizes());
    }
    return {};
  }
  const auto type = value->type()->cast<c10::TensorType>();
  if (!type || !type->scalarType()) return {};
  const auto sizes = type->sizes().concrete_sizes();
  if (!sizes) return {};
  return text_of_sizes(*type->scalarType(), *sizes);
}

/// "aten::addmm in 'head' on float32 [2], float32 [3, 4], float32 [5, 2]" of an operator that did
/// not return, else where the last one that did is. Empty if nothing was recorded.
std::string text_of_stop(const std::shared_ptr<jit::Graph>& graph, const jit::Module& mirror) {
  const Recording recording = listed(graph);
  if (recording.nodes.empty()) return {};
  const jit::Node* const last = recording.nodes.back();
  std::string place = place_of(recording, recording.nodes.size() - 1);
  if (!last->outputs().empty()) return "behind " + place;
  std::string operands;
  for (const jit::Value* input : last->inputs()) {
    const std::string text = text_of_operand(recording, mirror, input);
    if (!text.empty()) operands += (operands.empty() ? " on " : ", ") + text;
  }
  return "at " + place + operands;
}

}  // namespace

void raise_failed_run(const RunOf& run, const std::vector<c10::IValue>& values,
                      const std::shared_ptr<jit::Graph>& graph, const jit::Module& mirror,
                      const std::exception& error) {
  const std::string sizes = text_of_sizes(values);
  const std::string stop = text_of_stop(graph, mirror);
  raise(run.where, "the network does not run on ", run.inputs,
        sizes.empty() ? "" : " (" + sizes + ")", stop.empty() ? "" : "; it stops " + stop, ": ",
        reason_of(error));
}

}  // namespace mezzo::deploy
