// Ranges by ONNX Runtime: the values of the main graph become outputs of a model of ours.
#include <algorithm>

#include "convert/engine/ort.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/store.h"

namespace mezzo::convert {
namespace {

void add_output(Message& graph, Document& document, std::string_view name) {
  auto tensor = std::make_unique<Message>();
  tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(Element::kFloat));
  auto type = std::make_unique<Message>();
  type->add(field::type::kTensor, std::move(tensor));
  auto info = std::make_unique<Message>();
  info->add(field::value_info::kName, document.keep(std::string(name)));
  info->add(field::value_info::kType, std::move(type));
  graph.add(field::graph::kOutput, std::move(info));
}

}  // namespace

ValueRanges OrtEngine::ranges(Document& document, const Graph& graph,
                              const std::vector<Sample>& samples,
                              const std::filesystem::path& scratch) const {
  Message& main = document.model().find(field::model::kGraph)->open();
  std::vector<ValueId> watched;
  for (const auto& [name, id] : graph.scope(0).names) {
    const Value& value = graph.value(id);
    const bool is_output = std::ranges::any_of(
        value.uses, [](const Use& use) { return use.node == kNone && use.scope == 0; });
    if (value.type == tensor_of(Element::kFloat) && value.producer != kNone && !is_output)
      watched.push_back(id);
  }
  std::ranges::sort(watched);
  for (const ValueId id : watched) add_output(main, document, graph.value(id).name);
  store_model(document, scratch);
  const OrtSession session(runtime_, scratch, false);
  ValueRanges ranges;
  const auto add = [&](ValueId id, const Array& array) {
    if (array.element != Element::kFloat) return;
    double& largest = ranges[id];
    largest = std::max(largest, largest_magnitude(array));
  };
  const auto& outputs = graph.scope(0).outputs;
  for (const Sample& sample : samples) {
    const std::vector<Array> results = session.run(sample);
    for (std::size_t i = 0; i < results.size(); ++i)
      add(i < outputs.size() ? outputs[i] : watched.at(i - outputs.size()), results[i]);
    for (const ValueId id : graph.scope(0).inputs) {
      const auto found = sample.find(std::string(graph.value(id).name));
      if (found != sample.end()) add(id, found->second);
    }
  }
  return ranges;
}

}  // namespace mezzo::convert
