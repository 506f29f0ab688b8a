#include "convert/sensitivity.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "convert/concat.h"
#include "convert/low.h"

namespace mezzo::convert {
namespace {

/// dB: where there is no signal, or no noise.
constexpr double kMostDecibels = 200.0;

Array rounded(Array array, Element low) {
  round_in_place(low, floats_of(array));
  return array;
}

bool at(const std::vector<bool>& flags, std::size_t i) {
  return i < flags.size() && flags[i];
}

}  // namespace

bool Rounding::touches(NodeId node) const {
  const auto n = static_cast<std::size_t>(node);
  const auto is_set = [](bool flag) { return flag; };
  return std::ranges::any_of(inputs[n], is_set) || std::ranges::any_of(outputs[n], is_set);
}

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
      const bool is_low = weights_only ? decisions.map.is_constant[v] && !is_float_weight()
                                       : decisions.is_low_use(static_cast<ValueId>(v), u);
      auto& inputs = rounding.inputs[static_cast<std::size_t>(uses[u].node)];
      inputs[static_cast<std::size_t>(uses[u].input)] = is_low;
    }
  }
  return rounding;
}

std::string text_of(const LocalError& error) {
  if (!error.finite) return "not finite";
  std::ostringstream text;
  text.precision(3);
  text << "SQNR " << error.sqnr_db << " dB, " << error.relative_to_range << " of its range";
  return text.str();
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

void LocalErrors::add(const Node& node, const OperatorCall& call,
                      const std::vector<Array>& results) {
  const auto n = static_cast<std::size_t>(&node - graph_.nodes.data());
  if (!rounding_.touches(static_cast<NodeId>(n))) return;
  OperatorCall again = call;
  std::vector<Array> inputs;
  inputs.reserve(call.inputs.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Array* input = call.inputs[i];
    if (input != nullptr && input->element == Element::kFloat && at(rounding_.inputs[n], i))
      again.inputs[i] = &inputs.emplace_back(rounded(*input, rounding_.low));
  }
  std::vector<Array> low;
  if (!library_.run(again, &low).empty()) return;
  for (std::size_t i = 0; i < std::min({low.size(), results.size(), node.outputs.size()}); ++i) {
    if (node.outputs[i] == kNone || results[i].element != Element::kFloat) continue;
    if (low[i].element != Element::kFloat || low[i].dims != results[i].dims) continue;
    if (at(rounding_.outputs[n], i)) round_in_place(rounding_.low, floats_of(low[i]));
    sums_[n].difference.add(floats_of(results[i]), floats_of(low[i]));
    sums_[n].is_seen = true;
  }
}

std::vector<LocalError> LocalErrors::sorted() const {
  std::vector<LocalError> errors;
  for (std::size_t n = 0; n < sums_.size(); ++n) {
    if (!sums_[n].is_seen) continue;
    const Difference& difference = sums_[n].difference;
    const Node& node = graph_.nodes[n];
    errors.push_back({graph_.key_of(node), graph_.describe(node),
                      std::clamp(difference.sqnr_db(), -kMostDecibels, kMostDecibels),
                      difference.relative_to_range(), difference.finite});
  }
  std::ranges::stable_sort(errors, [](const LocalError& a, const LocalError& b) {
    return a.finite != b.finite ? !a.finite : a.sqnr_db < b.sqnr_db;
  });
  return errors;
}

}  // namespace mezzo::convert
