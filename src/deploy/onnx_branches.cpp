// Branches: taken during the export where their conditions follow from no input, ONNX's If where
// they do.
#include <algorithm>
#include <set>
#include <utility>

#include "deploy/onnx_turns.h"
#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;

bool throws(const jit::Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(), [](const jit::Node* node) {
    return node->kind() == c10::prim::RaiseException;
  });
}

void reach(const std::shared_ptr<Operand>& operand, std::set<std::shared_ptr<Operand>>* all) {
  if (!all->insert(operand).second) return;
  for (const OnnxValue& element : operand->elements) reach(element.operand(), all);
  if (operand->view) reach(operand->view->base, all);
}

/// Views share what they show, so that the memory is written and not replaced. Elements that lie at
/// one place are written once.
void write_back(at::Tensor target, at::Tensor source) {
  for (std::int64_t d = 0; d < target.dim(); ++d) {
    if (target.stride(d) != 0 || target.size(d) < 2) continue;
    target = target.narrow(d, 0, 1);
    source = source.narrow(d, 0, 1);
  }
  target.copy_(source);
}

[[noreturn]] void refuse_results(const std::string& what) {
  raise<UnsupportedError>("export_onnx", "a branch that follows from inputs gives ", what,
                          "; let both sides give tensors and numbers of one type");
}

}  // namespace

Walker::Snapshot Walker::keep() const {
  std::set<std::shared_ptr<Operand>> all;
  for (const auto& [value, operand] : values_) reach(operand.operand(), &all);
  Snapshot snapshot;
  for (const std::shared_ptr<Operand>& operand : all) {
    Kept kept{operand,
              operand->kind,
              operand->name,
              operand->path,
              operand->examples,
              operand->elements,
              operand->keys,
              operand->is_constant,
              operand->version,
              operand->view ? operand->view->base_version : 0,
              {}};
    // Weights are not written; others may be.
    if (g_.writes_in_place && operand->path.empty()) {
      for (const c10::IValue& example : operand->examples)
        kept.tensors.push_back(example.isTensor() && example.toTensor().defined()
                                   ? example.toTensor().detach().clone()
                                   : at::Tensor());
    }
    snapshot.push_back(std::move(kept));
  }
  return snapshot;
}

void Walker::restore(const Snapshot& snapshot) {
  for (const Kept& kept : snapshot) {
    Operand& operand = *kept.operand;
    operand.kind = kept.kind;
    operand.name = kept.name;
    operand.path = kept.path;
    operand.examples = kept.examples;
    operand.elements = kept.elements;
    operand.keys = kept.keys;
    operand.is_constant = kept.is_constant;
    operand.version = kept.version;
    if (operand.view) operand.view->base_version = kept.view_version;
    for (std::size_t k = 0; k < kept.tensors.size(); ++k) {
      if (!kept.tensors[k].defined()) continue;
      const at::Tensor now = operand.examples[k].toTensor();
      if (now.sizes() == kept.tensors[k].sizes()) write_back(now.detach(), kept.tensors[k]);
    }
  }
}

void Walker::branch(const Node& node) {
  const OnnxValue condition = value(node.input());
  const auto take = [&](std::size_t side) {
    const jit::Block& taken = *node.blocks()[side];
    block(taken);
    for (std::size_t i = 0; i < node.outputs().size(); ++i)
      set(node.outputs()[i], value(taken.outputs()[i]));
  };
  if (condition.is_constant()) return take(condition.to_bool() ? 0 : 1);
  // A model of ONNX cannot throw: what the module checks is taken to hold.
  for (const std::size_t side : {0U, 1U}) {
    if (throws(*node.blocks()[side])) return take(1 - side);
  }
  dynamic_branch(node, condition);
}

void Walker::block_of_branch(const Node& node, std::size_t side, const Taken& taken) {
  std::vector<bool> before = stays_out_;
  stays_out_.resize(taken.size(), false);
  for (std::size_t k = 0; k < taken.size(); ++k) stays_out_[k] = stays_out_[k] || taken[k] != side;
  block(*node.blocks()[side]);
  stays_out_ = std::move(before);
}

void Walker::block_of_loop(const jit::Block& body, const std::vector<std::size_t>& run_of) {
  std::vector<bool> before = stays_out_;
  if (!before.empty()) {
    stays_out_.clear();
    for (const std::size_t run : run_of) stays_out_.push_back(before[run]);
  }
  block(body);
  stays_out_ = std::move(before);
}

/// Both blocks of a node are gone through for what they write, and the outcome is thrown away.
Walker::Written Walker::written_by(const Node& node, const Taken& taken) {
  Written written;
  const Snapshot before = keep();
  for (const std::size_t side : {0U, 1U}) {
    g_.open_body();
    block_of_branch(node, side, taken);
    g_.close_body({}, {});
    for (const Kept& kept : before) {
      if (kept.operand->kind != kept.kind || kept.operand->keys != kept.keys ||
          kept.operand->elements.size() != kept.elements.size())
        raise<UnsupportedError>("export_onnx", "a branch that follows from inputs changes how ",
                                "many elements a list has, which cannot be said in ONNX; change ",
                                "it behind the branch, or, in a loop, ", kSelectBehind);
      for (std::size_t i = 0; i < kept.elements.size(); ++i) {
        if (kept.operand->elements[i].operand() != kept.elements[i].operand())
          written.elements.insert({kept.operand, i});
      }
      if (kept.operand->version == kept.version || kept.operand->view) continue;
      if (std::ranges::find(written.tensors, kept.operand) == written.tensors.end())
        written.tensors.push_back(kept.operand);
    }
    restore(before);
  }
  return written;
}

/// One side: its nodes, and what it gives: results, then what was written.
Walker::Side Walker::side_of(const Node& node, std::size_t number, const Taken& taken,
                             const Written& written) {
  const jit::Block& block = *node.blocks()[number];
  Side side;
  const Snapshot before = keep();
  g_.open_body();
  block_of_branch(node, number, taken);
  for (const jit::Value* output : block.outputs()) side.results.push_back(value(output));
  for (const auto& [container, place] : written.elements)
    side.results.push_back(container->elements[place]);
  for (const OnnxValue& result : side.results) leaves_of(result, &side.leaves);
  for (const auto& operand : written.tensors) side.leaves.emplace_back(operand);
  Names names;
  for (const OnnxValue& leaf : side.leaves) {
    std::vector<c10::IValue> examples;
    for (std::size_t k = 0; k < g_.variants(); ++k) {
      const c10::IValue example = example_of(leaf, k);
      if (!example.isTensor() && !example.isScalar())
        refuse_results("a value of type " + example.tagKind());
      examples.push_back(example.isTensor() ? example.toTensor().detach().clone() : example);
    }
    names.push_back(g_.own_node("Identity", g_.state_of(leaf, element_type(examples[0]))));
    side.examples.push_back(std::move(examples));
  }
  side.body = g_.close_body(names, {});
  restore(before);
  return side;
}

void Walker::dynamic_branch(const Node& node, const OnnxValue& condition) {
  const bool is_tensor = example_of(condition, 0).isTensor();
  Taken taken;
  for (std::size_t k = 0; k < g_.variants(); ++k) {
    const c10::IValue example = example_of(condition, k);
    taken.push_back((is_tensor ? example.toTensor().item<bool>() : example.toBool()) ? 0 : 1);
  }
  std::string test = g_.state_of(condition, at::kBool);
  if (!is_tensor) test = g_.op("Squeeze", {test});
  const Written written = written_by(node, taken);
  const std::array<Side, 2> sides = {side_of(node, 0, taken, written),
                                     side_of(node, 1, taken, written)};
  if (sides[0].leaves.size() != sides[1].leaves.size())
    refuse_results("lists of different lengths");
  convert::MadeNode made;
  made.op = "If";
  made.inputs = {test};
  made.attributes["then_branch"] = sides[0].body;
  made.attributes["else_branch"] = sides[1].body;
  std::vector<OnnxValue> leaves;
  for (std::size_t l = 0; l < sides[0].leaves.size(); ++l) {
    if (element_type(sides[0].examples[l][0]) != element_type(sides[1].examples[l][0]))
      refuse_results("values of different types");
    std::vector<c10::IValue> examples;
    for (std::size_t k = 0; k < g_.variants(); ++k)
      examples.push_back(sides[taken[k]].examples[l][k]);
    made.outputs.push_back(g_.fresh("If_out"));
    leaves.push_back(made_of(made.outputs.back(), std::move(examples)));
  }
  if (leaves.empty()) return;
  g_.add_node(std::move(made));
  std::size_t next = 0;
  for (std::size_t i = 0; i < node.outputs().size(); ++i)
    set(node.outputs()[i], with_leaves(sides[0].results[i], leaves, &next));
  std::size_t result = node.outputs().size();
  for (const auto& [container, place] : written.elements)
    container->elements[place] = with_leaves(sides[0].results[result++], leaves, &next);
  write_tensors(written, {leaves.begin() + static_cast<std::ptrdiff_t>(next), leaves.end()});
}

void Walker::write_tensors(const Written& written, const std::vector<OnnxValue>& results) {
  const at::NoGradGuard no_grad;
  std::size_t next = 0;
  for (const auto& operand : written.tensors) {
    const Operand& result = *results[next++].operand();
    for (std::size_t k = 0; k < g_.variants(); ++k)
      operand->examples[k].toTensor().copy_(result.examples[k].toTensor());
    write(OnnxValue(operand), result.name);
  }
}

}  // namespace mezzo::deploy::detail
