#include "convert/judge/sensitivity.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "convert/onnx/concat.h"
#include "convert/report/report.h"

namespace mezzo::convert {
Rounding rounding_of(const Graph& graph, const Decisions& decisions, const ConvertPolicy& policy) {
  Rounding rounding;
  rounding.low = policy.low();
  const bool weights_only = policy.options().weights_only;
  for (const Node& node : graph.nodes) {
    rounding.inputs.emplace_back(node.inputs.size(), false);
    auto& outputs = rounding.outputs.emplace_back(node.outputs.size(), false);
    for (std::size_t i = 0; i < node.outputs.size() && !weights_only; ++i)
      outputs[i] = node.outputs[i] != kNone && decisions.is_low_value(node.outputs[i]);
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const std::vector<Use>& uses = graph.values[v].uses;
    for (std::size_t u = 0; u < uses.size(); ++u) {
      if (uses[u].node == kNone) continue;
      const auto is_float_weight = [&] {
        return std::ranges::binary_search(decisions.float_weights,
                                          graph.key_of(graph.node(uses[u].node)));
      };
      const auto id = static_cast<ValueId>(v);
      const bool is_low = weights_only ? decisions.map.is_constant[v] && !is_float_weight()
                                       : decisions.is_low_use(id, u) || decisions.is_low_table(id);
      auto& inputs = rounding.inputs[static_cast<std::size_t>(uses[u].node)];
      inputs[static_cast<std::size_t>(uses[u].input)] = is_low;
    }
  }
  return rounding;
}

void tell_cost_of_low(const std::vector<LocalError>& errors, const std::set<std::string>& kept,
                      std::vector<Decision>& decisions) {
  std::map<std::string_view, const LocalError*> of_key;
  for (const LocalError& error : errors) of_key[error.key] = &error;
  for (Decision& decision : decisions) {
    const auto found = of_key.find(decision.key);
    if (decision.low || found == of_key.end() || !kept.contains(decision.key)) continue;
    decision.otherwise += concat({decision.otherwise.empty() ? "" : "; ",
                                  "low, its own error would be: ", text_of(*found->second)});
  }
}

}  // namespace mezzo::convert
