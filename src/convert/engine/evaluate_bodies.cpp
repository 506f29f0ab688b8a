// If, Loop, Scan and SequenceMap.
#include <algorithm>

#include "convert/engine/evaluate.h"
#include "convert/onnx/fields.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

bool is_true(const Datum& datum) {
  return !datum.tensor.bytes.empty() && datum.tensor.bytes[0] != 0;
}

DatumPtr flag(bool value) {
  return datum_of({Element::kBool, {}, std::string(1, value ? '\1' : '\0')});
}

DatumPtr number(std::int64_t value) {
  return datum_of(
      {Element::kInt64, {}, std::string(reinterpret_cast<const char*>(&value), sizeof(value))});
}

std::int64_t listed(const std::vector<std::int64_t>& values, std::size_t i) {
  return i < values.size() ? values[i] : 0;
}

}  // namespace

bool Evaluation::body(const Node& node) {
  if (!node.domain.empty()) return false;
  if (node.op == "If") {
    branch(node);
  } else if (node.op == "Loop") {
    loop(node);
  } else if (node.op == "Scan") {
    scan(node);
  } else if (node.op == "SequenceMap") {
    sequence_map(node);
  } else {
    return false;
  }
  return true;
}

void Evaluation::branch(const Node& node) {
  const ScopeId taken = node.body(is_true(*input(node, 0)) ? "then_branch" : "else_branch");
  if (taken == kNone) raise("evaluate", graph_.describe(node), " has no such branch");
  scope(taken);
  give(node, outputs_of(taken));
}

void Evaluation::loop(const Node& node) {
  const ScopeId inside = node.body("body");
  if (inside == kNone) raise("evaluate", graph_.describe(node), " has no body");
  const bool is_counted = has(node, 0);
  const std::int64_t most = is_counted ? whole(node, 0) : 0;
  bool going = !has(node, 1) || is_true(*input(node, 1));
  const std::size_t states = node.inputs.size() < 2 ? 0 : node.inputs.size() - 2;
  std::vector<DatumPtr> state;
  for (std::size_t j = 0; j < states; ++j) state.push_back(input(node, j + 2));
  std::vector<std::vector<Array>> seen(node.outputs.size() > states ? node.outputs.size() - states
                                                                    : 0);
  for (std::int64_t i = 0; going && (!is_counted || i < most); ++i) {
    bind(inside, 0, number(i));
    bind(inside, 1, flag(going));
    for (std::size_t j = 0; j < states; ++j) bind(inside, j + 2, state[j]);
    scope(inside);
    const std::vector<DatumPtr> results = outputs_of(inside);
    going = is_true(*results.at(0));
    for (std::size_t j = 0; j < states; ++j) state[j] = results.at(j + 1);
    for (std::size_t k = 0; k < seen.size(); ++k)
      seen[k].push_back(results.at(states + 1 + k)->tensor);
  }
  for (std::size_t k = 0; k < seen.size(); ++k) {
    const ValueId inner = graph_.scope(inside).outputs.at(states + 1 + k);
    state.push_back(datum_of(seen[k].empty() ? Array{graph_.value(inner).type.element, {0}, {}}
                                             : stacked(seen[k], 0)));
  }
  give(node, state);
}

void Evaluation::scan(const Node& node) {
  const ScopeId inside = node.body("body");
  if (node.opset < 9 || inside == kNone)
    raise<UnsupportedError>("evaluate", graph_.describe(node), " is the batched Scan of opset 8");
  const auto ints = [&](const char* name) {
    const Message* given = graph_.attribute(node, name);
    return given == nullptr ? std::vector<std::int64_t>()
                            : repeated_integers(*given, field::attribute::kInts);
  };
  const auto axes = ints("scan_input_axes");
  const auto backward = ints("scan_input_directions");
  const auto out_axes = ints("scan_output_axes");
  const auto out_backward = ints("scan_output_directions");
  const auto scanned = static_cast<std::size_t>(graph_.integer(node, "num_scan_inputs", 0));
  const std::size_t states = node.inputs.size() - std::min(scanned, node.inputs.size());
  std::vector<DatumPtr> state;
  for (std::size_t j = 0; j < states; ++j) state.push_back(input(node, j));
  std::vector<std::vector<Array>> seen(node.outputs.size() - std::min(states, node.outputs.size()));
  const auto axis_of = [](std::int64_t axis, const Array& array) {
    return axis < 0 ? axis + static_cast<std::int64_t>(array.dims.size()) : axis;
  };
  const Array& first = input(node, states)->tensor;
  const std::int64_t count =
      first.dims.at(static_cast<std::size_t>(axis_of(listed(axes, 0), first)));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < states; ++j) bind(inside, j, state[j]);
    for (std::size_t k = 0; k < scanned; ++k) {
      const Array& all = input(node, states + k)->tensor;
      const std::int64_t place = listed(backward, k) != 0 ? count - 1 - i : i;
      bind(inside, states + k, datum_of(slice_at(all, axis_of(listed(axes, k), all), place)));
    }
    scope(inside);
    const std::vector<DatumPtr> results = outputs_of(inside);
    for (std::size_t j = 0; j < states; ++j) state[j] = results.at(j);
    for (std::size_t k = 0; k < seen.size(); ++k) {
      const Array& made = results.at(states + k)->tensor;
      seen[k].insert(listed(out_backward, k) != 0 ? seen[k].begin() : seen[k].end(), made);
    }
  }
  for (std::size_t k = 0; k < seen.size(); ++k) {
    const std::int64_t axis = listed(out_axes, k);
    const auto rank = seen[k].empty() ? 1 : static_cast<std::int64_t>(seen[k][0].dims.size()) + 1;
    state.push_back(datum_of(stacked(seen[k], axis < 0 ? axis + rank : axis)));
  }
  give(node, state);
}

void Evaluation::sequence_map(const Node& node) {
  const ScopeId inside = node.body("body");
  if (inside == kNone) raise("evaluate", graph_.describe(node), " has no body");
  std::vector<std::vector<DatumPtr>> made(node.outputs.size());
  const std::size_t count = input(node, 0)->items.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const DatumPtr& each = input(node, k);
      bind(inside, k, each->kind == Datum::Kind::kSequence ? each->items.at(i) : each);
    }
    scope(inside);
    const std::vector<DatumPtr> results = outputs_of(inside);
    for (std::size_t k = 0; k < made.size(); ++k) made[k].push_back(results.at(k));
  }
  std::vector<DatumPtr> all;
  all.reserve(made.size());
  for (auto& items : made) all.push_back(sequence_of(std::move(items)));
  give(node, all);
}

}  // namespace mezzo::convert
