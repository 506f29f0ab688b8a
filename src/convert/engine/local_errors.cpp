#include "convert/engine/local_errors.h"

#include <algorithm>

#include "convert/onnx/low.h"

namespace mezzo::convert {
namespace {

/// dB: where there is no signal, or no noise.
constexpr double kMostDecibels = 200.0;

Array rounded(Array array, Element low) {
  round_in_place(low, floats_of(array));
  return array;
}

bool at(const std::vector<bool>& flags, std::size_t i) {
  return i < flags.size() && flags[i];
}

}  // namespace

bool Rounding::touches(NodeId node) const {
  const auto n = static_cast<std::size_t>(node);
  const auto is_set = [](bool flag) { return flag; };
  return std::ranges::any_of(inputs[n], is_set) || std::ranges::any_of(outputs[n], is_set);
}

void LocalErrors::add(const Node& node, const OperatorCall& call,
                      const std::vector<Array>& results) {
  const auto n = static_cast<std::size_t>(&node - graph_.nodes.data());
  if (!rounding_.touches(static_cast<NodeId>(n))) return;
  OperatorCall again = call;
  std::vector<Array> inputs;
  inputs.reserve(call.inputs.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Array* input = call.inputs[i];
    if (input != nullptr && input->element == Element::kFloat && at(rounding_.inputs[n], i))
      again.inputs[i] = &inputs.emplace_back(rounded(*input, rounding_.low));
  }
  std::vector<Array> low;
  if (!library_.run(again, &low).empty()) return;
  for (std::size_t i = 0; i < std::min({low.size(), results.size(), node.outputs.size()}); ++i) {
    if (node.outputs[i] == kNone || results[i].element != Element::kFloat) continue;
    if (low[i].element != Element::kFloat || low[i].dims != results[i].dims) continue;
    if (at(rounding_.outputs[n], i)) round_in_place(rounding_.low, floats_of(low[i]));
    sums_[n].difference.add(floats_of(results[i]), floats_of(low[i]));
    sums_[n].is_seen = true;
  }
}

std::vector<LocalError> LocalErrors::sorted() const {
  std::vector<LocalError> errors;
  for (std::size_t n = 0; n < sums_.size(); ++n) {
    if (!sums_[n].is_seen) continue;
    const Difference& difference = sums_[n].difference;
    const Node& node = graph_.nodes[n];
    errors.push_back({graph_.key_of(node), graph_.describe(node),
                      std::clamp(difference.sqnr_db(), -kMostDecibels, kMostDecibels),
                      difference.relative_to_range(), difference.finite});
  }
  std::ranges::stable_sort(errors, [](const LocalError& a, const LocalError& b) {
    return a.finite != b.finite ? !a.finite : a.sqnr_db < b.sqnr_db;
  });
  return errors;
}

}  // namespace mezzo::convert
