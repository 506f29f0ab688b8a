// Recurrent layers and cells.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// LibTorch's gates in ONNX's order, [directions, gates * hidden, ...].
at::Tensor reordered(const std::vector<at::Tensor>& parts, const std::vector<std::int64_t>& order) {
  std::vector<at::Tensor> directions;
  for (const at::Tensor& part : parts) {
    const std::vector<at::Tensor> gates = part.chunk(static_cast<std::int64_t>(order.size()), 0);
    std::vector<at::Tensor> sorted;
    sorted.reserve(order.size());
    for (const std::int64_t gate : order) sorted.push_back(gates[static_cast<std::size_t>(gate)]);
    directions.push_back(at::cat(sorted, 0));
  }
  return at::stack(directions, 0);
}

struct Kind {
  std::string op;
  std::vector<std::int64_t> order;
  std::string activation;  // of plain layers
  bool has_cell = false;
};

/// All layers' weights, in LibTorch's order; these are numbers.
std::vector<at::Tensor> weights_of(C c) {
  std::vector<at::Tensor> weights;
  for (const OnnxValue& one : c.arg("params").elements()) {
    if (!one.is_constant()) c.refuse("its weights follow from the model's inputs");
    weights.push_back(example_of(one, 0).toTensor().detach());
  }
  return weights;
}

/// W, R and B of a layer, from the first of its weights on; B is empty without biases.
Names layer_weights(C c, const Kind& kind, std::span<const at::Tensor> weights, bool biases,
                    const std::string& hint) {
  const std::size_t each = biases ? 4 : 2;
  std::vector<at::Tensor> input, recurrent, bias;
  for (std::size_t begin = 0; begin < weights.size(); begin += each) {
    input.push_back(weights[begin]);
    recurrent.push_back(weights[begin + 1]);
    if (biases)
      bias.push_back(at::cat({reordered({weights[begin + 2]}, kind.order)[0],
                              reordered({weights[begin + 3]}, kind.order)[0]},
                             0));
  }
  return {c.g.tensor(reordered(input, kind.order), hint + ".W"),
          c.g.tensor(reordered(recurrent, kind.order), hint + ".R"),
          biases ? c.g.tensor(at::stack(bias, 0), hint + ".B") : ""};
}

/// One layer after the other; each gives [time, directions, batch, hidden].
Names recurrent(C c, const Kind& kind) {
  // A packed sequence is a padded one here, [time, batch, width], and its batch sizes are lengths.
  const bool packed = c.takes("batch_sizes");
  const std::vector<at::Tensor> weights = weights_of(c);
  const bool biases = c.b("has_biases"), both = c.b("bidirectional"),
             first = !packed && c.b("batch_first");
  const std::int64_t layers = c.i("num_layers"), directions = both ? 2 : 1;
  const std::size_t each = (biases ? 4U : 2U) * static_cast<std::size_t>(directions);
  const std::int64_t hidden = weights[1].size(1);
  if (weights.size() != each * static_cast<std::size_t>(layers))
    c.refuse("projections cannot be said in ONNX");
  const bool batched = packed || c.rank("input") == 3;
  std::string x = c.x(packed ? "data" : "input");
  if (!batched) x = c.unsqueezed(x, {first ? 0 : 1});
  if (first) x = c.transposed(x, 3, 0, 1);
  const std::vector<OnnxValue> states =
      kind.has_cell ? c.arg("hx").elements() : std::vector<OnnxValue>{c.arg("hx")};
  Names given;
  for (const OnnxValue& state : states)
    given.push_back(batched ? c.g.name_of(state) : c.unsqueezed(c.g.name_of(state), {1}));
  Names last_hidden, last_cell;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto own = std::span(weights).subspan(each * static_cast<std::size_t>(layer), each);
    Names in = {x};
    for (std::string& one : layer_weights(c, kind, own, biases, kind.op + std::to_string(layer)))
      in.push_back(std::move(one));
    in.push_back(packed ? c.x("batch_sizes", at::kInt) : "");
    for (const std::string& state : given)
      in.push_back(layers == 1 ? state
                               : c.sliced(state, 0, layer * directions, (layer + 1) * directions));
    OnnxAttributes attributes{{"hidden_size", hidden},
                              {"direction", std::string(both ? "bidirectional" : "forward")}};
    if (kind.op == "GRU") attributes["linear_before_reset"] = std::int64_t{1};
    if (kind.activation == "Relu")
      attributes["activations"] = std::vector<std::string>(both ? 2 : 1, kind.activation);
    const Names out = c.g.ops(kind.op, in, attributes, kind.has_cell ? 3 : 2);
    if (both) {
      x = c.one("Reshape",
                {c.one("Transpose", {out[0]}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}}),
                 c.g.ints({0, 0, -1})});
    } else {
      x = c.squeezed(out[0], {1});
    }
    last_hidden.push_back(out[1]);
    if (kind.has_cell) last_cell.push_back(out[2]);
  }
  if (first) x = c.transposed(x, 3, 0, 1);
  if (!batched) x = c.squeezed(x, {first ? 0 : 1});
  const auto joined = [&](const Names& parts) {
    const std::string all =
        parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", std::int64_t{0}}});
    return batched ? all : c.squeezed(all, {1});
  };
  if (kind.has_cell) return {x, joined(last_hidden), joined(last_cell)};
  return {x, joined(last_hidden)};
}

std::string gates(C c, const std::string& x, std::string_view weight, std::string_view bias) {
  Names in = {x, c.x(weight)};
  if (c.has(bias)) in.push_back(c.x(bias));
  return c.one("Gemm", in, {{"transB", std::int64_t{1}}});
}

Names parts(C c, const std::string& all, std::size_t count) {
  OnnxAttributes attributes{{"axis", std::int64_t{1}}};
  if (c.g.opset() >= 18) attributes["num_outputs"] = static_cast<std::int64_t>(count);
  return c.g.ops("Split", {all}, attributes, count);
}

Names lstm_cell(C c) {
  const std::vector<OnnxValue> state = c.arg("hx").elements();
  const std::string sum = c.one("Add", {gates(c, c.x("input"), "w_ih", "b_ih"),
                                        gates(c, c.g.name_of(state[0]), "w_hh", "b_hh")});
  const Names g = parts(c, sum, 4);
  const std::string kept = c.one("Mul", {c.one("Sigmoid", {g[1]}), c.g.name_of(state[1])});
  const std::string cell =
      c.one("Add", {kept, c.one("Mul", {c.one("Sigmoid", {g[0]}), c.one("Tanh", {g[2]})})});
  return {c.one("Mul", {c.one("Sigmoid", {g[3]}), c.one("Tanh", {cell})}), cell};
}

Names gru_cell(C c) {
  const std::string h = c.x("hx");
  const Names a = parts(c, gates(c, c.x("input"), "w_ih", "b_ih"), 3),
              b = parts(c, gates(c, h, "w_hh", "b_hh"), 3);
  const std::string reset = c.one("Sigmoid", {c.one("Add", {a[0], b[0]})}),
                    update = c.one("Sigmoid", {c.one("Add", {a[1], b[1]})});
  const std::string fresh = c.one("Tanh", {c.one("Add", {a[2], c.one("Mul", {reset, b[2]})})});
  return {c.one("Add", {fresh, c.one("Mul", {update, c.one("Sub", {h, fresh})})})};
}

Names plain_cell(C c, std::string_view op) {
  return {c.one(op, {c.one("Add", {gates(c, c.x("input"), "w_ih", "b_ih"),
                                   gates(c, c.x("hx"), "w_hh", "b_hh")})})};
}

constexpr Row kRecurrent[] = {
    {"lstm", 13,
     [](C c) {
       return recurrent(c, {"LSTM", {0, 3, 1, 2}, "", true});
     }},
    {"gru", 13,
     [](C c) {
       return recurrent(c, {"GRU", {1, 0, 2}, "", false});
     }},
    {"rnn_tanh", 13,
     [](C c) {
       return recurrent(c, {"RNN", {0}, "Tanh", false});
     }},
    {"rnn_relu", 13,
     [](C c) {
       return recurrent(c, {"RNN", {0}, "Relu", false});
     }},
    {"lstm_cell", 13, lstm_cell},
    {"gru_cell", 13, gru_cell},
    {"rnn_tanh_cell", 13, [](C c) { return plain_cell(c, "Tanh"); }},
    {"rnn_relu_cell", 13, [](C c) { return plain_cell(c, "Relu"); }},
};

}  // namespace

std::span<const Row> recurrent_rows() {
  return kRecurrent;
}

}  // namespace mezzo::deploy::detail
