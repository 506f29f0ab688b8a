#include "deploy/script/types.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "deploy/script/result_types.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr int kMostRounds = 8;

/// The fact that a trace wrote beside a value.
std::optional<Fact> traced_fact(const Value& value, at::ScalarType low) {
  const auto type = value.type()->cast<c10::TensorType>();
  if (type == nullptr || !type->scalarType()) return std::nullopt;
  return fact_of(*type->scalarType(), type->dim().value_or(0) > 0, low);
}

}  // namespace

bool has_real_operand(const Verdict& verdict, const std::vector<Fact>& facts) {
  return verdict.product && std::ranges::any_of(verdict.operands, [&](std::size_t i) {
           return is_castable(facts[i].kind);
         });
}

OperandCast cast_of(const Verdict& verdict, const std::vector<Fact>& facts) {
  switch (verdict.way) {
    case Way::kLow:
      return {true, Kind::kLow};
    case Way::kFloat:
    case Way::kThroughFloat:
      return {true, Kind::kFloat};
    case Way::kWidest: {
      const bool all_low = std::ranges::all_of(verdict.operands, [&](std::size_t i) {
        return facts[i].kind == Kind::kLow || facts[i].kind == Kind::kNothing ||
               facts[i].kind == Kind::kWhole;
      });
      // Equal already, or nothing that could differ.
      const bool all_float = std::ranges::none_of(verdict.operands, [&](std::size_t i) {
        return facts[i].kind == Kind::kLow || facts[i].kind == Kind::kReal || facts[i].touched;
      });
      return {!all_low && !all_float, Kind::kFloat};
    }
    default:
      return {};
  }
}

Types::Types(Graph& graph, const torch::jit::Module& module,
             const std::unordered_map<const Value*, bool>& changing, Start start)
    : module_(module), changing_(changing), start_(std::move(start)) {
  for (std::size_t i = 1; i < graph.inputs().size(); ++i) {
    Fact fact{.kind = Kind::kUnknown};
    const auto changes = changing_.find(graph.inputs()[i]);
    const bool is_fixed = changes == changing_.end() || !changes->second;
    if (is_fixed && i - 1 < start_.inputs.size()) fact = start_.inputs[i - 1];
    set(graph.inputs()[i], std::move(fact));
  }
  // Facts that a product shows of its operands hold before it too.
  std::size_t known = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    follow(graph.block());
    if (learned_.size() == known) break;
    known = learned_.size();
  }
}

const Fact& Types::of(const Value* value) const {
  static const Fact kNotKnown{.kind = Kind::kUnknown};
  const auto found = facts_.find(value);
  return found == facts_.end() ? kNotKnown : found->second;
}

void Types::set(const Value* value, Fact fact) {
  if (const auto known = start_.known.find(value); known != start_.known.end()) {
    fact = known->second;
  } else if (const auto learned = learned_.find(value);
             learned != learned_.end() && fact.kind == Kind::kUnknown) {
    fact = learned->second;
  } else if (start_.original == nullptr) {
    if (const auto traced = traced_fact(*value, start_.low)) fact = *traced;
  } else if (fact.kind == Kind::kUnknown) {
    // A cast moves float32 and the low type alone.
    const Fact& original = start_.original->of(value);
    if (is_castable(original.kind)) {
      fact.kind = fact.touched ? Kind::kReal : original.kind;
      fact.sized = original.sized;
    } else if (original.kind != Kind::kNothing) {
      fact.kind = original.kind;
    }
  }
  facts_[value] = std::move(fact);
}

std::vector<Fact> Types::inputs_of(const Node& node) const {
  std::vector<Fact> facts;
  for (const Value* input : node.inputs()) facts.push_back(of(input));
  return facts;
}

void Types::follow(Block* block) {
  for (Node* node : block->nodes()) follow(node);
}

void Types::follow_loop(Node* node) {
  Block* const body = node->blocks().at(0);
  const auto carried = node->inputs().slice(2);
  std::vector<Fact> facts;
  for (const Value* value : carried) facts.push_back(of(value));
  for (int round = 0; round < kMostRounds; ++round) {
    for (std::size_t i = 0; i < facts.size(); ++i) set(body->inputs()[i + 1], facts[i]);
    follow(body);
    bool is_stable = true;
    for (std::size_t i = 0; i < facts.size(); ++i) {
      Fact joined = either(facts[i], of(body->outputs()[i + 1]));
      is_stable = is_stable && joined == facts[i];
      facts[i] = std::move(joined);
    }
    if (is_stable) break;
  }
  for (std::size_t i = 0; i < facts.size(); ++i) set(node->outputs()[i], facts[i]);
}

/// The fact about the elements of a list or a dictionary that the node makes.
Fact Types::of_container(const Node& node, std::size_t first, std::size_t step) const {
  const auto changes = changing_.find(node.output(0));
  if (changes != changing_.end() && changes->second)
    return {.kind = Kind::kUnknown, .touched = start_.verdicts != nullptr};
  Fact fact;
  bool is_first = true;
  for (std::size_t i = first; i < node.inputs().size(); i += step) {
    const Fact& one = of(node.input(i));
    fact = is_first ? one : either(fact, one);
    is_first = false;
  }
  return fact;
}

void Types::follow_attribute(Node* node) {
  const auto place = attribute_of(node->output(), module_);
  Fact fact{.kind = Kind::kUnknown, .touched = start_.verdicts != nullptr};
  const auto changes = changing_.find(node->output());
  const bool is_fixed = changes == changing_.end() || !changes->second;
  if (place && is_fixed && !place->value().isObject()) fact = fact_of(place->value(), start_.low);
  set(node->output(), std::move(fact));
}

void Types::follow_if(Node* node) {
  for (Block* block : node->blocks()) follow(block);
  for (std::size_t i = 0; i < node->outputs().size(); ++i) {
    set(node->outputs()[i],
        either(of(node->blocks()[0]->outputs()[i]), of(node->blocks()[1]->outputs()[i])));
  }
}

bool Types::follow_structure(Node* node) {
  switch (node->kind()) {
    case c10::prim::Constant: {
      const auto value = torch::jit::toIValue(node->output());
      set(node->output(), value ? fact_of(*value, start_.low) : Fact{});
      return true;
    }
    case c10::prim::Uninitialized:
      set(node->output(), Fact{});
      return true;
    case c10::prim::GetAttr:
      follow_attribute(node);
      return true;
    case c10::prim::If:
      follow_if(node);
      return true;
    case c10::prim::Loop:
      follow_loop(node);
      return true;
    default:
      return follow_tuple(node) || follow_container(node);
  }
}

bool Types::follow_tuple(Node* node) {
  const auto part_of = [](const Fact& tuple, std::int64_t index) {
    const auto size = static_cast<std::int64_t>(tuple.parts.size());
    const std::int64_t place = index < 0 ? index + size : index;
    if (place >= 0 && place < size) return tuple.parts[static_cast<std::size_t>(place)];
    return Fact{.kind = Kind::kUnknown, .touched = tuple.touched};
  };
  switch (node->kind()) {
    case c10::prim::TupleConstruct: {
      Fact fact;
      for (const Value* input : node->inputs()) {
        fact.parts.push_back(of(input));
        fact.touched = fact.touched || fact.parts.back().touched;
      }
      set(node->output(), std::move(fact));
      return true;
    }
    case c10::prim::TupleUnpack: {
      const Fact tuple = of(node->input());
      for (std::size_t i = 0; i < node->outputs().size(); ++i)
        set(node->outputs()[i], part_of(tuple, static_cast<std::int64_t>(i)));
      return true;
    }
    case c10::prim::TupleIndex: {
      const Fact tuple = of(node->input(0));
      const auto index = torch::jit::toIValue(node->input(1));
      set(node->output(), index ? part_of(tuple, index->toInt())
                                : Fact{.kind = Kind::kUnknown, .touched = tuple.touched});
      return true;
    }
    default:
      return false;
  }
}

bool Types::follow_container(Node* node) {
  switch (node->kind()) {
    case c10::prim::ListConstruct:
      set(node->output(), of_container(*node, 0, 1));
      return true;
    case c10::prim::DictConstruct:
      set(node->output(), of_container(*node, 1, 2));
      return true;
    case c10::prim::ListUnpack:
      for (const Value* output : node->outputs()) set(output, of(node->input()));
      return true;
    case c10::prim::unchecked_cast:
    case c10::prim::unchecked_unwrap_optional:
    case c10::aten::_unwrap_optional:
    case c10::aten::__getitem__:
    case c10::aten::values:
    case c10::aten::list:
      set(node->output(), of(node->input(0)));
      return true;
    default:
      return false;
  }
}

/// An operand beside a float one in an operator that wants one type has that type, or the operator
/// throws. Only what certainly runs shows something.
void Types::learn_from_product(const Node& node) {
  if (start_.verdicts != nullptr || node.kind().is_prim() || node.maybeSchema() == nullptr) return;
  static constexpr std::string_view kProducts[] = {"conv1d",
                                                   "conv2d",
                                                   "conv3d",
                                                   "linear",
                                                   "matmul",
                                                   "mm",
                                                   "bmm",
                                                   "addmm",
                                                   "conv_transpose1d",
                                                   "conv_transpose2d",
                                                   "conv_transpose3d",
                                                   "baddbmm",
                                                   "_convolution",
                                                   "_convolution_mode"};
  if (!node.kind().is_aten() ||
      std::ranges::find(kProducts, std::string_view(node.kind().toUnqualString())) ==
          std::end(kProducts))
    return;
  bool has_float = false;
  for (const Value* input : node.inputs())
    has_float = has_float || (input->type()->kind() == c10::TypeKind::TensorType &&
                              of(input).kind == Kind::kFloat);
  if (!has_float) return;
  for (const Value* input : node.inputs()) {
    if (input->type()->kind() != c10::TypeKind::TensorType || of(input).kind != Kind::kUnknown)
      continue;
    const bool certain = node.owningBlock() == node.owningGraph()->block() ||
                         input->node()->owningBlock() == node.owningBlock();
    if (!certain) continue;
    learned_[input] = Fact{.kind = Kind::kFloat, .sized = true};
    facts_[input] = learned_[input];
  }
}

void Types::follow_operator(Node* node) {
  std::vector<Fact> facts = inputs_of(*node);
  if (start_.verdicts != nullptr) {
    const auto found = start_.verdicts->find(node);
    if (found != start_.verdicts->end()) {
      const Verdict& verdict = found->second;
      const OperandCast cast = cast_of(verdict, facts);
      const bool is_real = has_real_operand(verdict, facts);
      for (const std::size_t i : verdict.operands) {
        if (verdict.way == Way::kThroughFloat || !cast.casts) break;
        if (is_castable(facts[i].kind) || (facts[i].kind == Kind::kUnknown && is_real))
          facts[i].kind = cast.target;
        facts[i].touched = facts[i].touched || cast.target == Kind::kLow;
      }
      if (verdict.way == Way::kRestore) {
        for (const Value* output : node->outputs()) {
          set(output, start_.original == nullptr ? Fact{.kind = Kind::kUnknown}
                                                 : start_.original->of(output));
        }
        return;
      }
      if (verdict.way == Way::kFloatResult && verdict.operands.size() == 1 &&
          is_castable(facts[verdict.operands[0]].kind)) {
        facts[verdict.operands[0]].kind = Kind::kFloat;
      }
    }
  }
  learn_from_product(*node);
  const std::vector<Fact> results = result_facts(*node, facts, start_.low);
  for (std::size_t i = 0; i < results.size(); ++i) set(node->outputs()[i], results[i]);
}

void Types::follow(Node* node) {
  if (!follow_structure(node)) follow_operator(node);
}

}  // namespace mezzo::deploy::script
