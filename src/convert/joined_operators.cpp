// What ONNX Runtime does wrong where it joins operators of float16: versions 1.30 to 1.32 crash
// while they load some models that are valid, and refuse others. The results avoid it.
#include "convert/joined_operators.h"

#include <algorithm>
#include <numeric>

#include "convert/decide.h"
#include "convert/fields.h"
#include "convert/rules.h"

namespace mezzo::convert {
namespace {

constexpr std::size_t kFarthest = 64;  // values that one search looks at

bool is_float(const Graph& graph, ValueId id) {
  return id != kNone && is_float_based(graph.value(id).type);
}

bool has_same_shape(const Graph& graph, ValueId a, ValueId b) {
  if (a == kNone || b == kNone) return false;
  const Value& left = graph.value(a);
  const Value& right = graph.value(b);
  return left.has_dims && right.has_dims && left.dims == right.dims;
}

bool has_result(const Node& node) {
  return !node.outputs.empty() && node.outputs[0] != kNone;
}

// Is the second operand that number?
bool is_by(const Constants& constants, const Node& node, double number) {
  if (node.inputs.size() != 2 || node.inputs[1] == kNone) return false;
  const ValueId id = node.inputs[1];
  return constants.is_constant(id) && constants.count(id) == 1 &&
         constants.values(id) == std::vector{number};
}

// Gives its first input as it is.
bool is_copy(const Graph& graph, const Constants& constants, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || !has_result(node)) return false;
  if (node.op == "Identity" || node.op == "Dropout") return true;
  if (node.op == "Mul" || node.op == "Div") return is_by(constants, node, 1);
  if (node.op == "Add" || node.op == "Sub") return is_by(constants, node, 0);
  if (node.op == "Expand" || node.op == "Reshape" || node.op == "Slice")
    return has_same_shape(graph, node.inputs[0], node.outputs[0]);
  return node.op == "Cast" && is_float(graph, node.inputs[0]) && is_float(graph, node.outputs[0]);
}

// The operator of the standard that made a value in the scope that reads it.
const Node* maker(const Graph& graph, ValueId id, ScopeId reader) {
  const NodeId producer = id == kNone ? kNone : graph.value(id).producer;
  if (producer == kNone) return nullptr;
  const Node& node = graph.node(producer);
  return node.domain.empty() && node.schema != nullptr && node.scope == reader ? &node : nullptr;
}

class JoinedOperators {
 public:
  JoinedOperators(const Graph& graph, const Constants& constants, SlotMap& map)
      : graph_(graph), constants_(constants), map_(map) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.domain.empty() || node.schema == nullptr) continue;
      if (node.op == "MatMul" && node.inputs.size() == 2) {
        transposed(node, 0);
        transposed(node, 1);
      }
      if (node.op == "BatchNormalization" && node.schema->since >= kOwnStatistics)
        behind_product(static_cast<NodeId>(n));
      if (node.op == "Sub") scaled_norm(node);
    }
  }

 private:
  static constexpr int kOwnStatistics = 14;       // BatchNormalization: statistics have a type
  static constexpr int kLayerNormalization = 17;  // in the standard

  using Permutation = std::vector<std::int64_t>;

  void keep(NodeId id, std::string_view why) {
    for (const Slot slot : map_.variables[static_cast<std::size_t>(id)])
      map_.slots.pin(slot, Label::kHigh, Level::kPattern, std::string(why));
  }

  // Or from so much that it is not worth to look further.
  bool follows_from_constants(ValueId id) const {
    std::vector<ValueId> ahead{id};
    for (std::size_t i = 0; i < std::min(ahead.size(), kFarthest); ++i) {
      if (ahead[i] == kNone || graph_.constant(ahead[i]) != nullptr) continue;
      const Node* node = maker(graph_, ahead[i], graph_.value(ahead[i]).scope);
      if (node == nullptr || !node->bodies.empty()) return false;
      if (node->inputs.empty() && node->op != "Constant") return false;
      ahead.insert(ahead.end(), node->inputs.begin(), node->inputs.end());
    }
    return true;
  }

  // From a product back to a value that it reads, and how it reads its dimensions.
  struct Way {
    ValueId at = kNone;
    std::vector<NodeId> passed;  // Transposes
    Permutation order;
    bool has_rank = true;    // the value has as many dimensions as what is multiplied
    bool is_scaled = false;  // behind it
  };

  // Transposes that carry the first dimension to the last two, in front of a product with
  // constants that have other dimensions, or with a number: a crash. Several count together.
  // ONNX Runtime brings them there through whatever computes element by element, or along
  // dimensions that it finds again.
  void transposed(const Node& product, std::size_t side) {
    const ValueId other = product.inputs[1 - side];
    if (other == kNone) return;
    const bool has_constants = follows_from_constants(other);
    std::vector<Way> ahead{{product.inputs[side], {}, {}, true, false}};
    for (std::size_t i = 0; i < std::min(ahead.size(), kFarthest); ++i) {
      Way way = ahead[i];
      const Node* node = maker(graph_, way.at, product.scope);
      if (node == nullptr || node->inputs.empty() || !is_passed(*node)) continue;
      if (node->op == "Transpose") {
        way.order = permuted(*node, way.order);
        way.passed.push_back(graph_.value(way.at).producer);
        const bool is_joined = has_constants || way.is_scaled;
        if (is_joined && moves_batch(way) && !has_rank(other, way.order.size())) keep(way.passed);
      }
      way.is_scaled = way.is_scaled || node->op == "Mul" || node->op == "Div";
      const ValueId after = way.at;
      for (const ValueId in : node->inputs) {
        if (!is_float(graph_, in) || constants_.is_constant(in)) continue;
        way.at = in;
        way.has_rank = ahead[i].has_rank && may_have_same_rank(in, after);
        ahead.push_back(way);
      }
    }
  }

  void keep(const std::vector<NodeId>& transposes) {
    for (const NodeId id : transposes)
      keep(id, "ONNX Runtime crashes where it joins such a Transpose of float16 with MatMul");
  }

  bool has_rank(ValueId id, std::size_t rank) const {
    return graph_.value(id).has_dims && graph_.value(id).dims.size() == rank;
  }

  // Products and normalisations have their own mind about dimensions.
  static bool is_passed(const Node& node) {
    const Rule* rule = find_rule(node.op);
    const bool is_heavy = rule != nullptr && rule->own == CastClass::kLow;
    return !is_heavy && node.bodies.empty() && node.op.find("Normalization") == std::string::npos;
  }

  bool may_have_same_rank(ValueId a, ValueId b) const {
    const Value& left = graph_.value(a);
    const Value& right = graph_.value(b);
    return !left.has_dims || !right.has_dims || left.dims.size() == right.dims.size();
  }

  // The order after a Transpose that is followed by `order`; empty where it is not known.
  Permutation permuted(const Node& transpose, const Permutation& order) const {
    Permutation own;
    if (const Message* perm = graph_.attribute(transpose, "perm")) {
      own = repeated_integers(*perm, field::attribute::kInts);
    } else {
      const ValueId in = transpose.inputs[0];
      const bool tells = order.empty() && in != kNone && graph_.value(in).has_dims;
      own.resize(tells ? graph_.value(in).dims.size() : order.size());
      std::iota(own.rbegin(), own.rend(), 0);
    }
    if (order.empty()) return own;
    Permutation both;
    for (const std::int64_t from : order) {
      if (from < 0 || from >= static_cast<std::int64_t>(own.size())) return {};
      both.push_back(own[static_cast<std::size_t>(from)]);
    }
    return both;
  }

  // (1, 2, ..., 0, r - 1) or (1, 2, ..., r - 1, 0); or what may become that with other dimensions.
  static bool moves_batch(const Way& way) {
    const Permutation& order = way.order;
    if (!way.has_rank) return !order.empty() && order[0] != 0;
    if (order.size() < 3) return false;
    for (std::size_t i = 0; i + 2 < order.size(); ++i) {
      if (order[i] != static_cast<std::int64_t>(i) + 1) return false;
    }
    return order[order.size() - 1] == 0 || order[order.size() - 2] == 0;
  }

  // A batch norm of float16 with float32 statistics: ONNX Runtime folds it into the product that
  // it follows, and fails. In float32 it is not folded.
  void behind_product(NodeId id) {
    const Node& norm = graph_.node(id);
    ValueId at = norm.inputs.empty() ? kNone : norm.inputs[0];
    for (std::size_t step = 0; step < kFarthest; ++step) {
      const Node* node = maker(graph_, at, norm.scope);
      if (node == nullptr || node->inputs.empty()) return;
      if (node->op == "MatMul")
        return keep(id,
                    "ONNX Runtime cannot fold its float32 statistics into a product of float16");
      if (!is_copy(graph_, constants_, *node) && node->op != "Transpose" && node->op != "Reshape")
        return;
      at = node->inputs[0];
    }
  }

  // ONNX Runtime makes a LayerNormalization of a normalisation in pieces. It reads what the pieces
  // read, or the 16 bits that were cast for them alone, and its scale must have that type.
  void scaled_norm(const Node& centre) {
    const ValueId input = centred_by(graph_, constants_, centre);
    if (input == kNone || !has_result(centre) || centre.opset < kLayerNormalization) return;
    for (const NodeId ratio : readers(centre.outputs[0])) {
      const Node& divided = graph_.node(ratio);
      if (divided.op != "Div" ||
          before_copies(graph_, constants_, divided.inputs[0]) != centre.outputs[0])
        continue;
      for (const NodeId scale : readers(divided.outputs[0])) {
        if (graph_.node(scale).op == "Mul")
          match(input, centre.outputs[0], graph_.node(scale).outputs[0]);
      }
    }
  }

  void match(ValueId input, ValueId centred, ValueId scaled) {
    const Slot reads = native(input);
    const Slot gives = native(scaled);
    if (reads == kNoSlot || gives == kNoSlot) return;
    const bool differ_by_wish = is_wish(reads) && is_wish(gives);
    if (has_label(reads, Label::kLow) && (differ_by_wish || has_other_readers(input)))
      return part(centred, scaled);
    if (!differ_by_wish) map_.slots.unite(reads, gives);
  }

  // Whose Casts are whose is not known here: with one between scale and bias, nothing is joined;
  // nor with one behind the difference, where the sum must be float32.
  void part(ValueId centred, ValueId scaled) {
    constexpr std::string_view kWhy = "ONNX Runtime would join a normalisation of two types";
    for (const NodeId id : readers(scaled)) {
      const Slot sum = native(graph_.node(id).outputs[0]);
      if (graph_.node(id).op != "Add" || sum == kNoSlot) continue;
      if (has_label(sum, Label::kHigh)) {
        map_.slots.pin(native(centred), Label::kLow, Level::kPattern, std::string(kWhy));
      } else {
        map_.slots.pin(native(scaled), Label::kHigh, Level::kPattern, std::string(kWhy));
        map_.slots.pin(sum, Label::kLow, Level::kPattern, std::string(kWhy));
      }
    }
  }

  Slot native(ValueId id) const { return map_.native[static_cast<std::size_t>(id)]; }

  bool has_label(Slot slot, Label label) const {
    const Pin* pin = map_.slots.pin_of(slot);
    return pin != nullptr && pin->label == label;
  }

  bool is_wish(Slot slot) const {
    const Pin* pin = map_.slots.pin_of(slot);
    return pin != nullptr && pin->level >= Level::kList;
  }

  // Others than the pieces.
  bool has_other_readers(ValueId id) const {
    const auto is_piece = [&](NodeId reader) {
      const Node& node = graph_.node(reader);
      return node.op == "ReduceMean" || centred_by(graph_, constants_, node) == id;
    };
    const auto is_output = [&](ValueId copy) {
      return std::ranges::any_of(graph_.value(copy).uses,
                                 [](const Use& use) { return use.node == kNone; });
    };
    return std::ranges::any_of(copies(id), is_output) ||
           !std::ranges::all_of(readers(id), is_piece);
  }

  // The value and its copies.
  std::vector<ValueId> copies(ValueId id) const {
    std::vector<ValueId> found{id};
    for (std::size_t i = 0; i < std::min(found.size(), kFarthest); ++i) {
      for (const Use& use : graph_.value(found[i]).uses) {
        if (use.node != kNone && use.input == 0 &&
            is_copy(graph_, constants_, graph_.node(use.node)))
          found.push_back(graph_.node(use.node).outputs[0]);
      }
    }
    return found;
  }

  // The nodes that read one of them, and are no copies.
  std::vector<NodeId> readers(ValueId id) const {
    std::vector<NodeId> found;
    for (const ValueId copy : copies(id)) {
      for (const Use& use : graph_.value(copy).uses) {
        if (use.node == kNone) continue;
        const Node& node = graph_.node(use.node);
        const bool is_known = node.domain.empty() && node.schema != nullptr && has_result(node);
        if (is_known && !is_copy(graph_, constants_, node)) found.push_back(use.node);
      }
    }
    return found;
  }

  const Graph& graph_;
  const Constants& constants_;
  SlotMap& map_;
};

}  // namespace

ValueId before_copies(const Graph& graph, const Constants& constants, ValueId id) {
  for (std::size_t step = 0; step < kFarthest && id != kNone; ++step) {
    const Node* node = maker(graph, id, graph.value(id).scope);
    if (node == nullptr || !is_copy(graph, constants, *node)) break;
    id = node->inputs[0];
  }
  return id;
}

ValueId centred_by(const Graph& graph, const Constants& constants, const Node& node) {
  if (node.op != "Sub" || node.inputs.size() != 2) return kNone;
  const ValueId input = before_copies(graph, constants, node.inputs[0]);
  const ValueId subtracted = before_copies(graph, constants, node.inputs[1]);
  if (input == kNone || subtracted == kNone) return kNone;
  const Node* mean = maker(graph, subtracted, node.scope);
  const bool is_mean = mean != nullptr && mean->op == "ReduceMean" && !mean->inputs.empty() &&
                       before_copies(graph, constants, mean->inputs[0]) == input;
  return is_mean ? input : kNone;
}

void pin_joined_operators(const Graph& graph, const ConvertPolicy& policy,
                          const Constants& constants, SlotMap& map) {
  if (policy.low() == Element::kFloat16 && runs_in_onnxruntime(policy.options().profile))
    JoinedOperators(graph, constants, map).run();
}

}  // namespace mezzo::convert
