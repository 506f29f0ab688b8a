// ONNX Runtime makes a LayerNormalization of a normalisation in pieces. It reads what the pieces
// read, or the 16 bits that were cast for them alone, and its scale must have that type.
#include "convert/decide/pins/joined_norms.h"

#include <algorithm>
#include <utility>

#include "convert/decide/decide.h"
#include "convert/decide/pins/copies.h"

namespace mezzo::convert {
namespace {

constexpr int kLayerNormalization = 17;  // in the standard

struct Norm {
  ValueId input = kNone, centred = kNone, scaled = kNone;
  std::vector<ValueId> copies;  // of the input, on the ways to the pieces
  bool is_apart = false;        // the Cast of the input stands in another body
  bool must_part = false;
};

bool is_standard(const Node& node) {
  return node.domain.empty() && node.schema != nullptr;
}

const Node* producer_of(const Graph& graph, ValueId id) {
  const NodeId producer = id == kNone ? kNone : graph.value(id).producer;
  return producer == kNone ? nullptr : &graph.node(producer);
}

// The operand of the mean that the node subtracts.
ValueId averaged_by(const Graph& graph, const Constants& constants, const Node& centre) {
  const ValueId mean = way_back(graph, constants, centre.inputs[1], centre.scope).origin;
  const Node* node = producer_of(graph, mean);
  const bool is_mean = node != nullptr && is_standard(*node) && node->op == "ReduceMean";
  return is_mean && !node->inputs.empty() ? node->inputs[0] : kNone;
}

class JoinedNorms {
 public:
  JoinedNorms(const Graph& graph, const Constants& constants, SlotMap& map)
      : graph_(graph), constants_(constants), map_(map) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (is_standard(node) && node.op == "Sub" && node.opset >= kLayerNormalization) find(node);
    }
    for (Norm& norm : norms_) join(norm);
    for (const auto& [one, other] : equal_) map_.slots.unite(one, other);
    map_.slots.settle();
    for (const Norm& norm : norms_) {
      if (norm.must_part) part(norm);
    }
  }

 private:
  void find(const Node& centre) {
    if (centre.outputs.empty() || centre.outputs[0] == kNone) return;
    Norm norm;
    norm.input = centred_by(graph_, constants_, centre);
    norm.centred = centre.outputs[0];
    if (norm.input == kNone) return;
    const ValueId averaged = averaged_by(graph_, constants_, centre);
    for (const ValueId read : {centre.inputs[0], averaged}) {
      const WayBack way = way_back(graph_, constants_, read, centre.scope);
      norm.copies.insert(norm.copies.end(), way.passed.begin(), way.passed.end());
      norm.is_apart = norm.is_apart || way.leaves_body;
    }
    for (const NodeId ratio : readers(norm.centred)) {
      const Node& divided = graph_.node(ratio);
      if (!is_op(divided, "Div") ||
          way_back(graph_, constants_, divided.inputs[0], divided.scope).origin != norm.centred)
        continue;
      for (const NodeId scale : readers(divided.outputs[0])) {
        if (!is_op(graph_.node(scale), "Mul")) continue;
        norm.scaled = graph_.node(scale).outputs[0];
        norms_.push_back(norm);
      }
    }
  }

  // An If whose condition is known goes, and what its bodies give comes from where it is.
  std::vector<ValueId> inputs_of(const Norm& norm) const {
    const Node* node = producer_of(graph_, norm.input);
    if (node == nullptr || !is_op(*node, "If")) return {norm.input};
    std::vector<ValueId> found{norm.input};
    const auto output = static_cast<std::size_t>(graph_.value(norm.input).output);
    for (const Body& body : node->bodies) {
      const std::vector<ValueId>& given = graph_.scope(body.scope).outputs;
      if (output < given.size())
        found.push_back(way_back(graph_, constants_, given[output], body.scope).origin);
    }
    return found;
  }

  void join(Norm& norm) {
    const std::vector<ValueId> inputs = inputs_of(norm);
    for (const ValueId id : inputs) {
      const bool is_low = has_label(native(id), Label::kLow);
      if (is_low && (norm.is_apart || has_other_readers(id))) norm.must_part = true;
      // Free inputs might still go low for another norm.
      if (!is_low && (norm.is_apart || inputs.size() > 1))
        map_.slots.pin(native(id), Label::kHigh, Level::kPattern,
                       "read by a normalisation in pieces");
    }
    if (norm.must_part || norm.is_apart || inputs.size() > 1) return;
    norm.must_part = !unite(native(norm.input), native(norm.scaled)) &&
                     has_label(native(norm.input), Label::kLow);
    // Where a copy is none after all, the pieces read it: it has the same type.
    for (const ValueId copy : norm.copies) {
      if (!norm.must_part && !unite(native(norm.input), native(copy))) norm.must_part = true;
    }
  }

  // False if both are wished for, in two types.
  bool unite(Slot one, Slot other) {
    if (one == kNoSlot || other == kNoSlot) return true;
    const Pin* left = map_.slots.pin_of(one);
    const Pin* right = map_.slots.pin_of(other);
    const auto is_wish = [](const Pin* pin) {
      return pin != nullptr && pin->level >= Level::kList;
    };
    if (is_wish(left) && is_wish(right) && left->label != right->label) return false;
    equal_.emplace_back(one, other);
    return true;
  }

  // The owners of Casts are not known here: with one between scale and bias, nothing is joined;
  // nor with one behind the difference, where the sum must be float32.
  void part(const Norm& norm) {
    constexpr std::string_view kWhy = "ONNX Runtime would join a normalisation of two types";
    const auto pin = [&](Slot slot, Label label) {
      map_.slots.pin(slot, label, Level::kPattern, std::string(kWhy));
    };
    for (const NodeId id : readers(norm.scaled)) {
      if (!is_op(graph_.node(id), "Add")) continue;
      const Slot sum = native(graph_.node(id).outputs[0]);
      if (sum == kNoSlot) continue;
      if (has_label(sum, Label::kHigh)) {
        pin(native(norm.centred), Label::kLow);
      } else {
        pin(native(norm.scaled), Label::kHigh);
        pin(sum, Label::kLow);
      }
    }
  }

  // Others than the pieces.
  bool has_other_readers(ValueId id) const {
    const auto is_output = [&](ValueId copy) {
      return std::ranges::any_of(graph_.value(copy).uses, [&](const Use& use) {
        return use.node == kNone && graph_.scope(use.scope).kind != ScopeKind::kFunction;
      });
    };
    if (std::ranges::any_of(copies_of(graph_, constants_, id), is_output)) return true;
    std::size_t means = 0;
    for (const NodeId reader : readers(id)) {
      const Node& node = graph_.node(reader);
      if (is_op(node, "ReduceMean")) {
        ++means;
      } else if (centred_by(graph_, constants_, node) != id) {
        return true;
      }
    }
    return means > 1;
  }

  // The nodes that read the value or a copy of it, and are no copies.
  std::vector<NodeId> readers(ValueId id) const {
    std::vector<NodeId> found;
    for (const ValueId copy : copies_of(graph_, constants_, id)) {
      for (const Use& use : graph_.value(copy).uses) {
        if (use.node == kNone) continue;
        const Node& node = graph_.node(use.node);
        const bool is_passed =
            node.instance != kNone || (use.input == 0 && may_be_copy(graph_, constants_, node));
        if (!is_passed) found.push_back(use.node);
      }
    }
    return found;
  }

  static bool is_op(const Node& node, std::string_view op) {
    return is_standard(node) && node.op == op && !node.outputs.empty() && node.outputs[0] != kNone;
  }

  Slot native(ValueId id) const { return map_.native[static_cast<std::size_t>(id)]; }

  bool has_label(Slot slot, Label label) const {
    const Pin* pin = map_.slots.pin_of(slot);
    return pin != nullptr && pin->label == label;
  }

  const Graph& graph_;
  const Constants& constants_;
  SlotMap& map_;
  std::vector<Norm> norms_;
  std::vector<std::pair<Slot, Slot>> equal_;  // united when all norms were looked at
};

}  // namespace

ValueId centred_by(const Graph& graph, const Constants& constants, const Node& node) {
  if (!is_standard(node) || node.op != "Sub" || node.inputs.size() != 2) return kNone;
  const ValueId averaged = averaged_by(graph, constants, node);
  if (averaged == kNone || node.inputs[0] == kNone) return kNone;
  const ValueId input = way_back(graph, constants, node.inputs[0], node.scope).origin;
  const ScopeId scope = graph.value(averaged).scope;
  return way_back(graph, constants, averaged, scope).origin == input ? input : kNone;
}

void pin_joined_norms(const Graph& graph, const Constants& constants, SlotMap& map) {
  JoinedNorms(graph, constants, map).run();
}

}  // namespace mezzo::convert
