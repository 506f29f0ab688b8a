// Packed sequences. LibTorch keeps the steps of all sequences one behind the other; in the model
// they are padded, [time, batch, ...], beside their lengths, which ONNX's recurrent layers take.
#include <algorithm>
#include <numeric>
#include <utility>

#include "deploy/onnx_walk.h"

namespace mezzo::deploy::detail {
namespace {

namespace jit = torch::jit;
using Results = std::vector<std::vector<c10::IValue>>;

bool is_recurrent(const jit::Node& node) {
  const std::string kind = node.kind().toQualString();
  return kind == "aten::lstm" || kind == "aten::gru" || kind == "aten::rnn_tanh" ||
         kind == "aten::rnn_relu";
}

OnnxValue packed(OnnxValue value) {
  value.operand()->is_packed = true;
  return value;
}

/// Batch and time change places.
std::string turned(const Call& call, const std::string& x, std::int64_t rank) {
  return call.transposed(x, rank, 0, 1);
}

std::string longest_of(const Call& call, const std::string& lengths) {
  return call.reduced("ReduceMax", lengths, {0}, true, 1);
}

/// Does the caller want as many steps as the longest sequence has?
bool wants_longest(const Call& call, const std::string& longest) {
  const OnnxValue& total = call.arg("total_length");
  if (!total.is_constant()) return total.operand()->name == longest;
  if (total.is_none() || total.to_int() <= 0) return true;
  for (std::size_t k = 0; k < call.g.variants(); ++k) {
    if (call.example("batch_sizes", k).size(0) != total.to_int()) return false;
  }
  return true;
}

/// The steps behind a sequence's end hold the padding value, and the longest one ends the result.
std::string padded(const Call& call, const jit::Node& node, const std::string& lengths) {
  Builder& g = call.g;
  const std::int64_t rank = call.rank("data") + 1;
  std::string x = call.x("data");
  const double padding = call.d("padding_value");
  if (padding != 0 || !is_recurrent(*node.input(0)->node())) {
    const std::string steps =
        g.op("Range", {g.integer(0), g.op("Squeeze", {call.sizes(x, 0, 1)}), g.integer(1)});
    std::vector<std::int64_t> behind(static_cast<std::size_t>(rank - 2));
    std::iota(behind.begin(), behind.end(), 2);
    const std::string inside =
        g.op("Less", {call.unsqueezed(steps, {1}), call.unsqueezed(lengths, {0})});
    x = g.op("Where", {call.unsqueezed(inside, behind), x, call.constant(padding)});
  }
  const std::string longest = longest_of(call, lengths);
  if (wants_longest(call, longest)) {
    x = g.op("Slice", {x, g.ints({0}), longest, g.ints({0})});
  } else {
    const std::string total = call.list("total_length");
    const std::string more = g.op("Sub", {total, call.sizes(x, 0, 1)});
    const std::vector<std::int64_t> before(static_cast<std::size_t>(rank), 0),
        after(static_cast<std::size_t>(rank - 1), 0);
    x = g.op("Pad",
             {x, g.op("Concat", {g.ints(before), more, g.ints(after)}, {{"axis", std::int64_t{0}}}),
              call.constant(padding)});
  }
  return call.b("batch_first") ? turned(call, x, rank) : x;
}

}  // namespace

bool Walker::packed_sequences(const Node& node) {
  const std::string kind = node.kind().toQualString();
  if (kind != "aten::_pack_padded_sequence" && kind != "aten::_pad_packed_sequence" &&
      kind != "aten::size" && !is_recurrent(node))
    return false;
  const std::vector<OnnxValue> operands = operands_of(node);
  const bool packs = kind == "aten::_pack_padded_sequence";
  if (packs && is_constant(operands[0]) && is_constant(operands[1])) return false;
  const bool reads = std::any_of(operands.begin(), operands.end(),
                                 [](const OnnxValue& one) { return one.operand()->is_packed; });
  if (!packs && !reads) return false;
  const Results results = evaluate(node, operands);
  const Call call(g_, node.schema(), operands, results);
  if (packs) {
    const std::string x = call.x("input");
    set(node.outputs()[0],
        packed(
            made_of(call.b("batch_first") ? turned(call, x, call.rank("input")) : x, results[0])));
    set(node.outputs()[1], packed(made_of(call.x("lengths", at::kLong), results[1])));
  } else if (kind == "aten::size") {
    // The first dimension of the batch sizes is as long as the longest sequence.
    if (node.inputs().size() != 2 || operands[1].to_int() != 0 || call.rank() != 1) return false;
    set(node.output(), made_of(longest_of(call, call.x()), results[0]));
  } else if (is_recurrent(node)) {
    const std::vector<OnnxValue> made = by_row(node, operands, results);
    for (std::size_t i = 0; i < made.size(); ++i)
      set(node.outputs()[i], i == 0 ? packed(made[i]) : made[i]);
  } else {
    const std::string lengths = call.x("batch_sizes");
    set(node.outputs()[0], made_of(padded(call, node, lengths), results[0]));
    set(node.outputs()[1], made_of(lengths, results[1]));
  }
  return true;
}

}  // namespace mezzo::deploy::detail
