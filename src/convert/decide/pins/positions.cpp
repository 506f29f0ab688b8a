// Positions: numbers that count, and what sines, places in images, and differences make of them.
// Half counts to 2048 and bfloat16 to 256; between two numbers further up nothing is left, and an
// angle or a difference is nothing but what is left.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kAngleWhy = "an angle of counted positions";
constexpr std::string_view kPlaceWhy = "coordinates less coordinates: a small difference";

class Positions {
 public:
  explicit Positions(const PinContext& context) : context_(context), graph_(context.graph) {}

  struct Kept {
    NodeId node;
    std::string_view why;
  };

  std::vector<Kept> run() {
    for (const Node& node : graph_.nodes) {
      if (!context_.is_standard(node)) continue;
      if (node.op == "Sin" || node.op == "Cos") angle(node);
      if (node.op == "Sub") difference(node);
    }
    return std::move(kept_);
  }

 private:
  static constexpr std::uint64_t kMostValues = 1U << 22U;

  // Does a value come from a count: Range, a Cast of integers, a constant that counts?
  bool is_count(ValueId id) {
    if (id == kNone) return false;
    if (context_.is_constant(id)) return is_counting_constant(id);
    const Node* node = context_.maker(id);
    if (node == nullptr) return false;
    if (node->op == "Range" || node->op == "CumSum") return true;
    if (node->op != "Cast" || node->inputs.empty() || node->inputs[0] == kNone) return false;
    const Element from = graph_.value(node->inputs[0]).type.element;
    return from == Element::kInt64 || from == Element::kInt32;
  }

  // Steps of one size that reach further than bfloat16 can count in halves.
  bool is_counting_constant(ValueId id) {
    const auto [found, is_new] = counting_.try_emplace(id, false);
    if (is_new) found->second = counts(id);
    return found->second;
  }

  bool counts(ValueId id) const {
    constexpr std::size_t kFewest = 8;
    const std::uint64_t count = context_.constants.count(id);
    if (count < kFewest || count > kMostValues) return false;
    return has_even_steps(context_.constants.floats(id));
  }

  // In the whole, or in the rows of a grid: each value repeats the one before it, goes on by the
  // step, or begins anew at the least.
  static bool has_even_steps(const std::vector<float>& values) {
    constexpr double kFarEnough = 32;  // steps
    if (values.empty()) return false;
    const auto [low, high] = std::ranges::minmax(values);
    double step = 0;
    for (std::size_t i = 1; i < values.size(); ++i) {
      const double now = static_cast<double>(values[i]) - values[i - 1];
      if (now == 0 || values[i] == low || values[i] == high) continue;
      if (step == 0) step = now;
      if (std::fabs(now - step) > 1e-3 * std::fabs(step)) return false;
    }
    return step != 0 && (static_cast<double>(high) - low) / std::fabs(step) >= kFarEnough;
  }

  // Back from a sine or a cosine to counts, or to what a caller gives, through one product at most:
  // positions times frequencies. A frequency of thousands shows every digit of what it multiplies,
  // however many products made that.
  void angle(const Node& node) {
    const ValueId from = node.inputs.empty() ? kNone : node.inputs[0];
    constexpr double kSeen = 0.01, kLost = 0.5;  // of a radian
    if (!reaches(from, kSeen)) {
      keep_way_to_counts(from, {.inputs_count = true}, kAngleWhy);
    } else {
      const int products = reaches(from, kLost) ? static_cast<int>(kFarthestWalk) : 1;
      keep_way_to_counts(from, {true, products, kSeen}, kAngleWhy);
    }
  }

  // Is an angle made with a constant whose rounding turns it by that much?
  bool reaches(ValueId angle, double turn) {
    bool does = false;
    const auto look = [&](ValueId id) { does = does || is_far(id, turn); };
    walk_back(graph_, {angle}, {}, [&](ValueId id, const Node* node) {
      look(id);
      if (node != nullptr && is_product(node->op)) std::ranges::for_each(node->inputs, look);
      return node == nullptr || is_between(node->op) ? Onward::kAll : Onward::kStop;
    });
    return does;
  }

  bool is_far(ValueId id, double turn) {
    if (!context_.is_constant(id)) return false;
    const double rounding = context_.low() == Element::kFloat16 ? 0x1p-11 : 0x1p-8;
    const auto [found, is_new] = largest_.try_emplace(id, 0);
    if (is_new && context_.constants.count(id) <= kMostValues) {
      for (const float value : context_.constants.floats(id))
        found->second = std::max(found->second, std::fabs(static_cast<double>(value)));
    }
    return found->second * rounding > turn;
  }

  // Expected places less own places, as matching has them.
  void difference(const Node& node) {
    if (node.inputs.size() != 2) return;
    for (std::size_t side = 0; side < 2; ++side) {
      const ValueId own = node.inputs[side];
      const ValueId other = node.inputs[1 - side];
      if (own == kNone || other == kNone || context_.is_constant(other)) continue;
      if (!is_count(source(own))) continue;
      if (keep_way_to_counts(other, {}, kPlaceWhy))
        kept_.push_back({context_.id_of(node), kPlaceWhy});
    }
  }

  // The value that another one is a copy of, moved or scaled.
  ValueId source(ValueId id) const {
    return walk_back(graph_, {id}, {},
                     [&](ValueId at, const Node* node) {
                       if (node == nullptr || context_.is_constant(at) || node->op == "Where")
                         return Onward::kStop;
                       const bool is_taken = moves_values(node->op) || is_scaled(*node);
                       return is_taken ? Onward::kFirst : Onward::kStop;
                     })
        .back();
  }

  // By a number, or moved by one.
  bool is_scaled(const Node& node) const {
    return (node.op == "Mul" || node.op == "Div" || node.op == "Add") && node.inputs.size() == 2 &&
           context_.is_constant(node.inputs[1]);
  }

  struct Goals {
    bool inputs_count = false;  // what a caller gives counts, too
    int products = 1;           // on the way
    double turn = 0;            // constants that are as far count, too; 0: none
  };

  // Keeps all between a value and the counts that it is made of; was there one?
  bool keep_way_to_counts(ValueId from, const Goals& goals, std::string_view why) {
    if (from == kNone) return false;
    std::map<ValueId, int> products{{from, 0}};
    const auto visit = [&](ValueId id, const Node* node) -> WayStep {
      const bool is_far_factor = goals.turn > 0 && is_far(id, goals.turn);
      if (is_far_factor || is_count(id) || (goals.inputs_count && is_given(id)))
        return {Onward::kStop, true};
      if (node == nullptr) return {context_.is_open(id) ? Onward::kAll : Onward::kStop, false};
      const bool is_sum = is_product(node->op);
      if (is_sum ? products[id] >= goals.products : !is_between(node->op)) return {};
      for (const ValueId in : node->inputs)
        products.try_emplace(in, products[id] + (is_sum ? 1 : 0));
      return {Onward::kAll, false};
    };
    const std::vector<ValueId> way = ways_back_to_goals(graph_, from, {}, visit);
    for (const ValueId id : way) {
      if (const Node* node = context_.maker(id)) kept_.push_back({context_.id_of(*node), why});
    }
    return !way.empty();
  }

  // A float that a caller gives: time steps, coordinates.
  bool is_given(ValueId id) const {
    const Value& value = graph_.value(id);
    return value.is_scope_input && value.scope == 0 && is_float_based(value.type);
  }

  const PinContext& context_;
  const Graph& graph_;
  std::map<ValueId, bool> counting_;
  std::map<ValueId, double> largest_;
  std::vector<Kept> kept_;
};

}  // namespace

void pin_positions(const PinContext& context) {
  for (const auto& [node, why] : Positions(context).run()) context.keep_node(node, why);
}

std::vector<NodeId> readers_of_positions(const PinContext& context) {
  std::vector<NodeId> readers;
  for (const auto& [node, why] : Positions(context).run()) readers.push_back(node);
  return readers;
}

}  // namespace mezzo::convert
