#include "deploy/script/apply.h"

#include "deploy/script/weights.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

/// Walks the blocks of a graph and casts operands.
class Applier {
 public:
  Applier(ScriptMethod& method, Casts& casts, DType low)
      : method_(method), casts_(casts), low_(low) {}

  void visit(Block* block) {
    casts_.enter(block);
    for (Node* node = *block->nodes().begin(); node != block->return_node();) {
      Node* const next = node->next();
      visit(node);
      node = next;
    }
    if (block == method_.graph->block()) {
      Node* const end = block->return_node();
      for (std::size_t i = 0; i < end->inputs().size(); ++i)
        end->replaceInput(i, casts_.restore(end->input(i), end));
    }
    casts_.leave();
  }

 private:
  void visit(Node* node) {
    if (!node->blocks().empty()) casts_.forget_written(node);
    for (Block* inner : node->blocks()) visit(inner);
    const auto found = method_.verdicts.find(node);
    if (found != method_.verdicts.end()) apply(node, found->second);
    const auto* const schema = node->maybeSchema();
    if (node->blocks().empty() && (schema == nullptr || schema->is_mutable()))
      casts_.forget_written(node);
  }

  void apply(Node* node, const Verdict& verdict) {
    switch (verdict.way) {
      case Way::kLeave:
        break;
      case Way::kLow:
      case Way::kFloat:
      case Way::kWidest:
        cast_operands(node, verdict);
        break;
      case Way::kFloatResult:
        ask_for_float(node, verdict);
        break;
      case Way::kWritten:
        for (const std::size_t i : verdict.operands) {
          if (i != 0) node->replaceInput(i, casts_.cast_like(node->input(i), node->input(0), node));
        }
        break;
      case Way::kThroughFloat:
        write_through_float(node, verdict);
        break;
      case Way::kRestore:
        for (const std::size_t i : verdict.operands)
          node->replaceInput(i, casts_.restore(node->input(i), node));
        break;
    }
  }

  std::vector<Fact> facts_of(const Node& node) const {
    std::vector<Fact> facts;
    for (const Value* input : node.inputs()) facts.push_back(method_.converted->of(input));
    return facts;
  }

  void cast_operands(Node* node, const Verdict& verdict) {
    const std::vector<Fact> facts = facts_of(*node);
    const OperandCast cast = cast_of(verdict, facts);
    if (!cast.casts) return;
    const bool is_real = has_real_operand(verdict, facts);
    for (const std::size_t i : verdict.operands)
      node->replaceInput(i, casts_.cast(node->input(i), cast.target, node, is_real));
  }

  void ask_for_float(Node* node, const Verdict& verdict) {
    const std::vector<Fact> facts = facts_of(*node);
    for (const std::size_t i : verdict.operands) {
      if (facts[i].kind == Kind::kUnknown)
        node->replaceInput(i, casts_.cast(node->input(i), Kind::kFloat, node));
      if (facts[i].kind != Kind::kLow && facts[i].kind != Kind::kReal) continue;
      const torch::jit::WithInsertPoint here(node);
      node->replaceInput(verdict.dtype_argument, node->owningGraph()->insertConstant(
                                                     static_cast<std::int64_t>(at::kFloat)));
    }
  }

  /// Computes on a float copy of what is written, which then gets the result.
  void write_through_float(Node* node, const Verdict& verdict) {
    const std::vector<Fact> facts = facts_of(*node);
    for (const std::size_t i : verdict.operands) {
      if (i != 0) node->replaceInput(i, casts_.cast(node->input(i), Kind::kFloat, node));
    }
    const Kind written = facts.at(0).kind;
    if (written != Kind::kLow && written != Kind::kReal && written != Kind::kUnknown) return;
    if (written == Kind::kUnknown && !facts[0].touched) return;
    Value* const target = node->input(0);
    torch::jit::Graph& graph = *node->owningGraph();
    node->output()->replaceAllUsesWith(target);
    node->replaceInput(0, insert_to(target, at::kFloat, node));
    const torch::jit::WithInsertPoint behind(node->next());
    Value* result = node->output();
    if (verdict.clamps) {
      const double largest = row_of(low_).largest;
      result = graph.insert(c10::aten::clamp, {result, -largest, largest});
    }
    graph.insert(c10::aten::copy_, {target, result});
  }

  ScriptMethod& method_;
  Casts& casts_;
  DType low_;
};

}  // namespace

void apply_verdicts(ScriptMethod& method, Casts& casts, DType low) {
  Applier(method, casts, low).visit(method.graph->block());
}

}  // namespace mezzo::deploy::script
