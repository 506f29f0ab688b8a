// Squares, and what roots, logarithms, quotients and comparisons make of them. A square has twice
// the exponent of its operand: half loses it below 2.4e-4 and above 256, and what a logarithm or a
// root makes of the rest shows every lost digit.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

#include "convert/decide/pin_context.h"
#include "convert/decide/pins/pins.h"
#include "convert/graph/walk.h"
#include "convert/onnx/low.h"
#include "convert/standard/operator_facts.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kSquareWhy =
    "a square that a root, a logarithm, a quotient or a comparison reads";
constexpr std::string_view kDistanceWhy = "a square of a difference, written out: it cancels out";
constexpr std::string_view kFrontEndWhy = "its squares are told apart however small they are";

class Powers {
 public:
  explicit Powers(const PinContext& context) : context_(context), graph_(context.graph) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      if (!context_.is_standard(node)) continue;
      if (adds(node)) distance(node);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone && tells_powers_apart(node, i))
          look_back(node.inputs[i], is_logarithm(node));
      }
    }
  }

 private:
  // bfloat16 has the range, and relative errors of a power are nothing to a root or a quotient.
  bool tells_powers_apart(const Node& node, std::size_t input) const {
    constexpr std::array<std::string_view, 8> kReaders{
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "ReduceLogSum", "Sub"};
    if (std::ranges::find(kReaders, node.op) != kReaders.end()) return true;
    if (smallest_normal(context_.low()) <= std::numeric_limits<float>::min()) return false;
    if (node.op == "Div") return input == 1;
    if (node.op == "Pow") return input == 0;
    return node.op == "Reciprocal" || node.op == "Sqrt";
  }

  bool is_square(const Node& node) const {
    if (node.op == "Mul") return multiplies_itself(node);
    if (node.op == "Pow") {
      return node.inputs.size() == 2 && context_.is_constant(node.inputs[1]) &&
             context_.constants.values(node.inputs[1]) == std::vector<double>{2};
    }
    return node.op == "ReduceSumSquare" || node.op == "ReduceL2";
  }

  // x x, and what only stands otherwise: x times its own copy or magnitude, or x times x^T.
  bool multiplies_itself(const Node& node) const {
    if (node.inputs.size() < 2 || node.inputs[0] == kNone || node.inputs[1] == kNone) return false;
    // Asked of the input itself: where its numbers come from may be low already.
    return context_.is_open(node.inputs[0]) &&
           same_numbers(node.inputs[0]) == same_numbers(node.inputs[1]);
  }

  // The value that another one is, in another order or with another sign.
  ValueId same_numbers(ValueId id) const {
    return walk_back(graph_, {id}, {},
                     [](ValueId, const Node* node) {
                       const bool goes_on = node != nullptr && keeps_numbers(*node);
                       return goes_on ? Onward::kFirst : Onward::kStop;
                     })
        .back();
  }

  static bool keeps_numbers(const Node& node) {
    constexpr std::array<std::string_view, 9> kSame{
        "Abs", "Cast", "Expand", "Flatten", "Identity", "Neg", "Reshape", "Transpose", "Unsqueeze"};
    return std::ranges::find(kSame, node.op) != kSame.end();
  }

  static bool adds(const Node& node) {
    return node.op == "Add" || node.op == "Sub" || node.op == "Sum";
  }

  // |a|^2 - 2 a b + |b|^2: near b, what is left is smaller than what rounding the terms costs. So
  // they are float32, and the product as well.
  void distance(const Node& sum) {
    std::vector<ValueId> squared;
    std::vector<const Node*> products;
    const auto is_term = [&](const Node* node) {
      return node != nullptr && (is_square(*node) || is_product(node->op));
    };
    const auto collect = [&](ValueId, const Node* node) {
      if (node == nullptr || !is_term(node)) return onward_in_sum(node);
      if (!is_square(*node))
        products.push_back(node);
      else if (context_.is_open(node->inputs[0]))
        squared.push_back(same_numbers(node->inputs[0]));
      return Onward::kStop;
    };
    walk_back(graph_, sum.inputs, {}, collect);
    std::erase_if(products, [&](const Node* node) { return !reads_one_of(*node, squared); });
    if (products.empty()) return;
    const auto visit = [&](ValueId, const Node* node) -> WayStep {
      if (!is_term(node)) return {onward_in_sum(node), false};
      return {Onward::kStop,
              is_square(*node) || std::ranges::find(products, node) != products.end()};
    };
    for (const ValueId in : sum.inputs) {
      for (const ValueId id : ways_back_to_goals(graph_, in, {}, visit)) {
        if (const Node* node = context_.maker(id))
          context_.keep_node(context_.id_of(*node), kDistanceWhy);
      }
    }
    context_.keep_node(context_.id_of(sum), kDistanceWhy);
  }

  Onward onward_in_sum(const Node* node) const {
    if (node == nullptr) return Onward::kStop;
    const bool goes_on = adds(*node) || adds_up(node->op) || is_scaled(*node) ||
                         moves_values(node->op) || keeps_numbers(*node);
    return goes_on ? Onward::kAll : Onward::kStop;
  }

  // Does it read one of the values, perhaps times a number?
  bool reads_one_of(const Node& product, const std::vector<ValueId>& values) const {
    const std::vector<ValueId> read =
        walk_back(graph_, product.inputs, {}, [&](ValueId, const Node* node) {
          const bool goes_on = node != nullptr && (is_scaled(*node) || keeps_numbers(*node));
          return goes_on ? Onward::kAll : Onward::kStop;
        });
    return std::ranges::any_of(
        read, [&](ValueId id) { return std::ranges::find(values, id) != values.end(); });
  }

  bool is_scaled(const Node& node) const {
    return (node.op == "Mul" || node.op == "Div") && node.inputs.size() == 2 &&
           (context_.is_constant(node.inputs[0]) || context_.is_constant(node.inputs[1]));
  }

  // A power stays one through sums, roots, bounds and factors.
  bool keeps_power(const Node& node) const {
    constexpr std::array<std::string_view, 7> kSumsOfPowers{"Add",  "Cast", "Mean", "Pow",
                                                            "Sqrt", "Sub",  "Sum"};
    if (std::ranges::find(kSumsOfPowers, node.op) != kSumsOfPowers.end()) return true;
    return moves_values(node.op) || adds_up(node.op) || is_scaled(node);
  }

  // A logarithm shows every band alike, however quiet it is.
  static bool is_logarithm(const Node& node) {
    return node.op == "Log" || node.op == "ReduceLogSum";
  }

  // From a reader back to squares, through one product at most: the sums over bands of a spectrum.
  void look_back(ValueId from, bool is_of_logarithm) {
    std::map<ValueId, int> products{{from, 0}};
    const auto visit = [&](ValueId id, const Node* node) -> WayStep {
      if (node == nullptr) return {context_.is_constant(id) ? Onward::kStop : Onward::kAll, false};
      if (is_square(*node)) return {Onward::kAll, true};  // of a root of squares, perhaps
      const bool is_sum = is_product(node->op);
      // Distances: |a|^2 - 2 a a^T + |a|^2.
      if (is_sum && products[id] == 0 && multiplies_itself(*node)) return {Onward::kStop, true};
      if (is_of_logarithm && is_power_of_transform(*node)) return {Onward::kAll, true};
      if (is_sum ? products[id] > 0 : !(keeps_power(*node) || (is_of_logarithm && weighs(*node))))
        return {};
      for (const ValueId in : node->inputs)
        products.try_emplace(in, products[id] + (is_sum ? 1 : 0));
      // A divisor of a power is no power to look at.
      const bool divides =
          is_of_logarithm && node->op == "Div" && context_.is_open(node->inputs[0]);
      return {divides ? Onward::kFirst : Onward::kAll, false};
    };
    for (const ValueId id : ways_back_to_goals(graph_, from, {}, visit)) {
      const Node* node = context_.maker(id);
      if (node == nullptr) continue;
      context_.keep_node(context_.id_of(*node), kSquareWhy);
      if (!is_of_logarithm) continue;
      const bool is_power = is_square(*node) || is_power_of_transform(*node) ||
                            (is_product(node->op) && multiplies_itself(*node));
      if (is_power) front_end(*node);
    }
  }

  static bool weighs(const Node& node) { return node.op == "Mul" || node.op == "Div"; }

  // The magnitude of a transform, and its product with another one: as large as a square of it.
  bool is_power_of_transform(const Node& node) {
    if (node.op != "Abs" && node.op != "Mul") return false;
    return std::ranges::all_of(node.inputs,
                               [&](ValueId in) { return !ways_to_transforms(in).empty(); });
  }

  // The products that a power is made of, where they are the first ones of the model: transforms
  // of a signal. Rounding the signal, or what joins and scales its transforms, would fill the
  // quiet bands with noise.
  void front_end(const Node& power) {
    for (const ValueId in : power.inputs) {
      for (const ValueId id : ways_to_transforms(in)) {
        if (const Node* node = context_.maker(id))
          context_.keep_node(context_.id_of(*node), kFrontEndWhy);
      }
    }
  }

  // The values between one and the transforms that it is made of, through all that joins, moves,
  // scales and adds them, with both ends.
  const std::vector<ValueId>& ways_to_transforms(ValueId from) {
    const auto [found, is_new] = transforms_.try_emplace(from);
    if (!is_new || from == kNone) return found->second;
    found->second = ways_back_to_goals(graph_, from, {}, [&](ValueId id, const Node* node) {
      if (node == nullptr)
        return WayStep{context_.is_constant(id) ? Onward::kStop : Onward::kAll, false};
      if (is_product(node->op)) return WayStep{Onward::kStop, is_first_product(*node)};
      const bool goes_on = weighs(*node) || adds(*node) || adds_up(node->op) ||
                           moves_values(node->op) || keeps_numbers(*node);
      return WayStep{goes_on ? Onward::kAll : Onward::kStop, false};
    });
    return found->second;
  }

  // Is there no other product between the signal and this one? Norms of the signal only scale it.
  bool is_first_product(const Node& product) const {
    bool is_first = true;
    walk_back(graph_, product.inputs, {}, [&](ValueId, const Node* node) {
      const bool is_passed =
          node == nullptr || is_between(node->op) || node->op.ends_with("Normalization");
      is_first = is_first && is_passed;
      return is_first ? Onward::kAll : Onward::kStop;
    });
    return is_first;
  }

  const PinContext& context_;
  const Graph& graph_;
  std::map<ValueId, std::vector<ValueId>> transforms_;  // the ways to them, asked for once
};

}  // namespace

void pin_powers(const PinContext& context) {
  Powers(context).run();
}

}  // namespace mezzo::convert
