// Values and inputs of nodes that the caller keeps float32 by name.
#include "convert/decide/decide.h"
#include "convert/onnx/concat.h"

namespace mezzo::convert {
namespace {

class ValuePins {
 public:
  ValuePins(const Graph& graph, const ConvertPolicy& policy, SlotMap& map)
      : graph_(graph), policy_(policy), map_(map) {}

  ExcludedValues run() {
    for (const NamePattern& pattern : policy_.excluded_tensors()) {
      if (pin_tensors(pattern)) continue;
      result_.warnings.push_back(
          concat({"excluded tensor '", pattern.text(), "' matches no value that may go low"}));
    }
    for (const InputPattern& pattern : policy_.excluded_inputs()) {
      if (pin_inputs(pattern)) continue;
      result_.warnings.push_back(
          concat({"excluded input '", pattern.text, "' matches no input that may go low"}));
    }
    return std::move(result_);
  }

 private:
  bool pin_tensors(const NamePattern& pattern) {
    const std::string why = concat({"excluded as tensor '", pattern.text(), "'"});
    bool is_found = false;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!pattern.matches(graph_.values[v].name)) continue;
      is_found = keep_float(map_.native[v], why) || is_found;
      for (std::size_t u = 0; u < map_.uses[v].size(); ++u)
        is_found = pin_use(graph_.values[v].uses[u], map_.uses[v][u], why) || is_found;
    }
    return is_found;
  }

  bool pin_inputs(const InputPattern& pattern) {
    const std::string why = concat({"excluded as input '", pattern.text, "'"});
    bool is_found = false;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      for (std::size_t u = 0; u < map_.uses[v].size(); ++u) {
        const Use& use = graph_.values[v].uses[u];
        if (use.node == kNone || use.input != pattern.index) continue;
        const Node& node = graph_.node(use.node);
        const bool is_it = pattern.node.text() == node.qualified_name() ||
                           pattern.node.matches(name_of_node(graph_, node));
        if (is_it) is_found = pin_use(use, map_.uses[v][u], why) || is_found;
      }
    }
    return is_found;
  }

  bool pin_use(const Use& use, Slot slot, const std::string& why) {
    if (!keep_float(slot, why)) return false;
    if (use.node != kNone) result_.readers.push_back(use.node);
    return true;
  }

  bool keep_float(Slot slot, const std::string& why) {
    if (slot == kNoSlot) return false;
    map_.slots.pin(slot, Label::kHigh, Level::kName, why);
    return true;
  }

  const Graph& graph_;
  const ConvertPolicy& policy_;
  SlotMap& map_;
  ExcludedValues result_;
};

}  // namespace

ExcludedValues pin_excluded_values(const Graph& graph, const ConvertPolicy& policy, SlotMap& map) {
  return ValuePins(graph, policy, map).run();
}

}  // namespace mezzo::convert
