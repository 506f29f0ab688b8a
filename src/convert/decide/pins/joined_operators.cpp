// Faults of ONNX Runtime where it joins operators of float16: versions 1.30 to 1.32 crash
// while they load some models that are valid, and refuse others. The results avoid it.
#include <algorithm>
#include <numeric>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/copies.h"
#include "convert/decide/pins/joined_norms.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/fields.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

// Engines put branches and functions in the place of their owners before they join operators.
constexpr WalkBounds kThroughInlined{.through = Through::kInlined};

// The operator of the standard that made a value, in whatever scope.
const Node* maker(const Graph& graph, ValueId id) {
  const NodeId producer = id == kNone ? kNone : graph.value(id).producer;
  if (producer == kNone) return nullptr;
  const Node& node = graph.node(producer);
  return node.domain.empty() && node.schema != nullptr ? &node : nullptr;
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
    }
  }

 private:
  static constexpr int kOwnStatistics = 14;  // BatchNormalization: statistics have a type

  using Permutation = std::vector<std::int64_t>;

  void keep(NodeId id, std::string_view why) {
    for (const Slot slot : map_.variables[static_cast<std::size_t>(id)])
      map_.slots.pin(slot, Label::kHigh, Level::kPattern, std::string(why));
  }

  // Or from so much that it is not worth to look further.
  bool follows_from_constants(ValueId id) const {
    bool does = true;
    walk_back(graph_, {id}, kThroughInlined, [&](ValueId at, const Node* node) {
      if (!does || graph_.constant(at) != nullptr) return Onward::kStop;
      if (!values_behind(graph_, at, Through::kInlined).empty()) return Onward::kAll;
      does = node != nullptr && (!node->inputs.empty() || node->op == "Constant");
      return Onward::kAll;
    });
    return does;
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
    const auto look = [&](Way way) -> std::vector<Way> {
      if (way.at == kNone) return {};
      const std::vector<ValueId> inlined = values_behind(graph_, way.at, Through::kInlined);
      if (!inlined.empty()) return ways_to(way, inlined);
      const Node* node = maker(graph_, way.at);
      if (node == nullptr || node->inputs.empty() || !is_passed(*node)) return {};
      if (node->op == "Transpose") {
        way.order = permuted(*node, way.order);
        way.passed.push_back(graph_.value(way.at).producer);
        const bool is_joined = has_constants || way.is_scaled;
        if (is_joined && moves_batch(way) && !has_rank(other, way.order.size())) keep(way.passed);
      }
      way.is_scaled = way.is_scaled || node->op == "Mul" || node->op == "Div";
      return ways_to(way, open_inputs(*node));
    };
    walk_places(std::vector<Way>{{product.inputs[side], {}, {}, true, false}}, kFarthestWalk, look);
  }

  // The way, gone on to each of these, of which the value is made or that stand for it.
  std::vector<Way> ways_to(const Way& way, const std::vector<ValueId>& values) const {
    std::vector<Way> ways;
    for (const ValueId id : values) {
      Way on = way;
      on.at = id;
      on.has_rank = way.has_rank && may_have_same_rank(id, way.at);
      ways.push_back(std::move(on));
    }
    return ways;
  }

  std::vector<ValueId> open_inputs(const Node& node) const {
    std::vector<ValueId> open = node.inputs;
    std::erase_if(open, [&](ValueId in) {
      return in == kNone || !is_float_based(graph_.value(in).type) || constants_.is_constant(in);
    });
    return open;
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
    return !is_product(node.op) && node.bodies.empty() &&
           node.op.find("Normalization") == std::string::npos;
  }

  bool may_have_same_rank(ValueId a, ValueId b) const {
    const Value& left = graph_.value(a);
    const Value& right = graph_.value(b);
    return !left.has_dims || !right.has_dims || left.dims.size() == right.dims.size();
  }

  // The order after a Transpose that is followed by `order`; empty if it is not known.
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
    constexpr std::string_view kWhy =
        "ONNX Runtime cannot fold its float32 statistics into a product of float16";
    const Node& norm = graph_.node(id);
    if (norm.inputs.empty()) return;
    bool is_behind = false;
    walk_back(graph_, {norm.inputs[0]}, kThroughInlined, [&](ValueId at, const Node* node) {
      if (node == nullptr) {
        const bool is_inlined = !values_behind(graph_, at, Through::kInlined).empty();
        return is_inlined ? Onward::kAll : Onward::kStop;
      }
      is_behind = is_behind || node->op == "MatMul";
      const bool is_passed = may_be_copy(graph_, constants_, *node) || node->op == "Transpose" ||
                             node->op == "Reshape";
      return is_passed && !is_behind ? Onward::kFirst : Onward::kStop;
    });
    if (is_behind) keep(id, kWhy);
  }

  const Graph& graph_;
  const Constants& constants_;
  SlotMap& map_;
};

}  // namespace

void pin_joined_operators(const PinContext& context) {
  if (!context.policy.avoids_joins()) return;
  JoinedOperators(context.graph, context.constants, context.map).run();
  pin_joined_norms(context.graph, context.constants, context.map);
}

}  // namespace mezzo::convert
