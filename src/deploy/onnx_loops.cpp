// Loops that are unrolled, and lists that grow in those that are not.
#include <limits>
#include <utility>

#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

}  // namespace

void Walker::loop(const Node& node) {
  const OnnxValue count = value(node.input(0)), condition = value(node.input(1));
  const bool is_counted = node.blocks()[0]->outputs()[0]->node()->kind() == c10::prim::Constant;
  if (!count.is_constant() || !condition.is_constant()) return dynamic_loop(node);
  if (is_counted) return unroll(node);
  // Whether the condition follows from inputs shows in the first turn, which is taken back then.
  const Snapshot before = keep();
  try {
    unroll(node);
  } catch (const EndsByInputs&) {
    restore(before);
    dynamic_loop(node);
  }
}

void Walker::unroll(const Node& node) {
  constexpr std::int64_t kMost = 10000;
  const std::int64_t count = value(node.input(0)).to_int();
  OnnxValue condition = value(node.input(1));
  const jit::Block& body = *node.blocks()[0];
  std::vector<OnnxValue> carried;
  for (std::size_t i = 2; i < node.inputs().size(); ++i) carried.push_back(value(node.input(i)));
  for (std::int64_t turn = 0; turn < count && condition.to_bool(); ++turn) {
    if (turn == kMost)
      raise<UnsupportedError>("export_onnx", "a loop has more than ", kMost, " turns");
    set(body.inputs()[0], constant_of(turn, g_.variants()));
    for (std::size_t i = 0; i < carried.size(); ++i) set(body.inputs()[i + 1], carried[i]);
    block(body);
    condition = value(body.outputs()[0]);
    if (!condition.is_constant()) throw EndsByInputs();
    for (std::size_t i = 0; i < carried.size(); ++i) carried[i] = value(body.outputs()[i + 1]);
  }
  for (std::size_t i = 0; i < carried.size(); ++i) set(node.outputs()[i], carried[i]);
}

/// The list becomes one tensor: its elements one behind the other.
void Walker::grow(const OnnxValue& list, const Names& scans, std::vector<c10::IValue> examples) {
  Operand& operand = *list.operand();
  Names parts;
  if (operand.kind == Operand::Kind::kGrown) {
    parts.push_back(operand.name);
  } else {
    for (const OnnxValue& element : operand.elements) {
      const std::string own = g_.state_of(element, element_type(example_of(element, 0)));
      parts.push_back(g_.op("Unsqueeze", {own, g_.ints({0})}));
    }
  }
  if (scans.size() == 1) {
    parts.push_back(scans[0]);
  } else {
    // Two a turn take turns: side by side, then one behind the other.
    Names sides;
    for (const std::string& scan : scans) sides.push_back(g_.op("Unsqueeze", {scan, g_.ints({1})}));
    const std::string all = g_.op("Concat", sides, {{"axis", std::int64_t{1}}});
    const std::string shape = g_.op(
        "Concat",
        {g_.ints({-1}), g_.op("Slice", {g_.op("Shape", {all}), g_.ints({2}), g_.ints({kEndless})})},
        {{"axis", std::int64_t{0}}});
    parts.push_back(g_.op("Reshape", {all, shape}));
  }
  operand.name = parts.size() == 1 ? parts[0] : g_.op("Concat", parts, {{"axis", std::int64_t{0}}});
  operand.kind = Operand::Kind::kGrown;
  operand.is_constant = false;
  operand.elements.clear();
  operand.examples = std::move(examples);
  ++operand.version;
}

void Walker::append_to_grown(const Node& node, const OnnxValue& list, const OnnxValue& element) {
  std::vector<c10::IValue> lists;
  for (std::size_t k = 0; k < g_.variants(); ++k) {
    const c10::IValue longer = list.operand()->examples[k].deepcopy();
    longer.toList().push_back(example_of(element, k));
    lists.push_back(longer);
  }
  const std::string own = g_.state_of(element, element_type(example_of(element, 0)));
  grow(list, {g_.op("Unsqueeze", {own, g_.ints({0})})}, std::move(lists));
  if (!node.outputs().empty()) set(node.output(), list);
}

/// The result of an operator on the tensor that the elements of a list are, one behind the other.
std::string Walker::of_grown(const Node& node, const std::vector<OnnxValue>& operands,
                             at::ScalarType result) {
  const std::string kind = node.kind().toQualString();
  const Operand& list = *operands[0].operand();
  const c10::List<c10::IValue> example = list.examples[0].toList();
  const bool has_tensors = !example.empty() && example.get(0).isTensor();
  const std::int64_t rank = has_tensors ? example.get(0).toTensor().dim() : 1;
  const auto axis_of = [&](std::int64_t most) {
    const std::int64_t axis = operands[1].to_int();
    return axis < 0 ? axis + most : axis;
  };
  const auto moved = [&](std::int64_t axis) {
    std::vector<std::int64_t> order;
    for (std::int64_t d = 1; d <= axis; ++d) order.push_back(d);
    order.push_back(0);
    for (std::int64_t d = axis + 1; d <= rank; ++d) order.push_back(d);
    return axis == 0 ? list.name : g_.op("Transpose", {list.name}, {{"perm", order}});
  };
  const auto part = [&](const std::string& shape, std::int64_t begin, std::int64_t end) {
    return g_.op("Slice", {shape, g_.ints({begin}), g_.ints({end})});
  };
  if (kind == "aten::len") return part(g_.op("Shape", {list.name}), 0, 1);
  if (kind == "aten::__getitem__")
    return g_.op("Gather", {list.name, g_.op("Squeeze", {g_.list_of(operands[1])})},
                 {{"axis", std::int64_t{0}}});
  if (kind == "aten::stack") return moved(axis_of(rank + 1));
  if (kind == "aten::cat" || kind == "aten::concat") {
    const std::int64_t axis = axis_of(rank);
    const std::string all = moved(axis), shape = g_.op("Shape", {all});
    const std::string sizes =
        g_.op("Concat", {part(shape, 0, axis), g_.ints({-1}), part(shape, axis + 2, kEndless)},
              {{"axis", std::int64_t{0}}});
    return g_.op("Reshape", {all, sizes});
  }
  if (kind == "aten::tensor")
    return g_.cast(g_.op("Reshape", {list.name, g_.ints({-1})}), element_type(example.get(0)),
                   result);
  raise<UnsupportedError>("export_onnx", "a list that grew in a loop whose turns follow from ",
                          "inputs can be stacked, joined, indexed and counted, and here it is ",
                          "used by ", kind, "; stack it");
}

bool Walker::grown_lists(const Node& node) {
  if (node.inputs().empty()) return false;
  const auto found = values_.find(node.input(0));
  if (found == values_.end() || found->second.operand()->kind != Operand::Kind::kGrown)
    return false;
  const std::vector<OnnxValue> operands = operands_of(node);
  if (node.kind().toQualString() == std::string("aten::append")) {
    append_to_grown(node, operands[0], operands[1]);
    return true;
  }
  if (node.maybeSchema() == nullptr) return false;
  const std::vector<std::vector<c10::IValue>> results = evaluate(node, operands);
  std::string made = of_grown(node, operands, element_type(results.at(0).at(0)));
  set(node.output(), made_of(std::move(made), results.at(0)));
  return true;
}

}  // namespace mezzo::deploy::detail
