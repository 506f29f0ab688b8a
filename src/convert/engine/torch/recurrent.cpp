// LSTM, GRU and RNN, step by step.
#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

Tensor activated(const std::string& name, const Tensor& x) {
  if (name == "Sigmoid") return at::sigmoid(x);
  if (name == "Tanh") return at::tanh(x);
  if (name == "Relu") return at::relu(x);
  refuse("the activation ", name);
}

/// One direction of a recurrent layer: its weights, its activations, and the state it is in.
struct Direction {
  Tensor w, r, bias_w, bias_r, peephole;
  std::vector<std::string> activations;
  Tensor hidden, cell;
  double clip = 0;
  bool linear_before_reset = false, input_forget = false;

  Tensor act(std::size_t i, const Tensor& x) const {
    return activated(activations.at(i), clip > 0 ? at::clamp(x, -clip, clip) : x);
  }
};

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  return at::add(at::matmul(x, w.transpose(0, 1)), bias);
}

void step_rnn(Direction& d, const Tensor& x) {
  d.hidden = d.act(0, at::add(linear(x, d.w, d.bias_w), linear(d.hidden, d.r, d.bias_r)));
}

// Gates in the order update, reset, hidden.
void step_gru(Direction& d, const Tensor& x) {
  const Tensors in = linear(x, d.w, d.bias_w).chunk(3, -1);
  const Tensors weights = d.r.chunk(3, 0);
  const Tensors biases = d.bias_r.chunk(3, 0);
  const Tensor update = d.act(0, at::add(in[0], linear(d.hidden, weights[0], biases[0])));
  const Tensor reset = d.act(0, at::add(in[1], linear(d.hidden, weights[1], biases[1])));
  const Tensor before = d.linear_before_reset
                            ? at::mul(reset, linear(d.hidden, weights[2], biases[2]))
                            : linear(at::mul(reset, d.hidden), weights[2], biases[2]);
  const Tensor next = d.act(1, at::add(in[2], before));
  d.hidden = at::add(at::mul(update.neg().add(1), next), at::mul(update, d.hidden));
}

// Gates in the order input, output, forget, cell.
void step_lstm(Direction& d, const Tensor& x) {
  const Tensors gates =
      at::add(linear(x, d.w, d.bias_w), linear(d.hidden, d.r, d.bias_r)).chunk(4, -1);
  const Tensors peeps = d.peephole.chunk(3, 0);
  const Tensor input = d.act(0, at::add(gates[0], at::mul(peeps[0], d.cell)));
  const Tensor forget =
      d.input_forget ? input.neg().add(1) : d.act(0, at::add(gates[2], at::mul(peeps[2], d.cell)));
  d.cell = at::add(at::mul(forget, d.cell), at::mul(input, d.act(1, gates[3])));
  const Tensor output = d.act(0, at::add(gates[1], at::mul(peeps[1], d.cell)));
  d.hidden = at::mul(output, d.act(2, d.cell));
}

/// The differences between the three layers.
struct Kind {
  std::int64_t gates;
  std::vector<std::string> activations;
  void (*step)(Direction&, const Tensor&);
};

bool is_batch_first(const Call& c) {
  return c.integer("layout", 0) != 0;
}

// The state at `index` that one direction starts from, or zeros.
Tensor state(const Call& c, std::size_t index, std::int64_t direction,
             const std::vector<std::int64_t>& shape) {
  if (c.has(index)) return c.in(index).select(is_batch_first(c) ? 1 : 0, direction);
  return at::zeros(shape, c.in(0).options());
}

// The weights at `index` of one direction, or zeros.
Tensor part(const Call& c, std::size_t index, std::int64_t direction,
            const std::vector<std::int64_t>& shape) {
  return c.has(index) ? c.in(index)[direction] : at::zeros(shape, c.in(0).options());
}

Direction direction_of(const Call& c, const Kind& kind, std::int64_t number, std::int64_t batch) {
  const std::int64_t size = c.in(2).size(-1);
  Direction d;
  d.w = c.in(1)[number];
  d.r = c.in(2)[number];
  const Tensors bias = part(c, 3, number, {2 * kind.gates * size}).chunk(2, 0);
  d.bias_w = bias[0];
  d.bias_r = bias[1];
  d.peephole = part(c, 7, number, {3 * size});
  d.hidden = state(c, 5, number, {batch, size});
  d.cell = state(c, 6, number, {batch, size});
  d.clip = c.number("clip", 0);
  d.linear_before_reset = c.integer("linear_before_reset", 0) != 0;
  d.input_forget = c.integer("input_forget", 0) != 0;
  const std::vector<std::string> given = c.texts("activations");
  const std::size_t each = kind.activations.size();
  d.activations = kind.activations;
  for (std::size_t i = 0; i < each && static_cast<std::size_t>(number) * each + i < given.size();
       ++i)
    d.activations[i] = given[static_cast<std::size_t>(number) * each + i];
  return d;
}

// Runs over time; beyond a sequence's length its state stays and its output is zero.
Tensor run_direction(const Call& c, const Kind& kind, Direction& d, const Tensor& x, bool reverse) {
  const Tensor lengths = c.has(4) ? c.in(4).to(at::kLong).unsqueeze(1) : Tensor();
  std::vector<Tensor> steps(static_cast<std::size_t>(x.size(0)));
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    const std::int64_t t = reverse ? x.size(0) - 1 - i : i;
    const Tensor hidden = d.hidden;
    const Tensor cell = d.cell;
    kind.step(d, x[t]);
    Tensor out = d.hidden;
    if (lengths.defined()) {
      const Tensor inside = lengths.gt(t);
      out = at::where(inside, d.hidden, at::zeros({}, x.options()));
      d.hidden = at::where(inside, d.hidden, hidden);
      d.cell = at::where(inside, d.cell, cell);
    }
    steps[static_cast<std::size_t>(t)] = out;
  }
  return at::stack(steps);
}

// In layout 1 the batch comes first everywhere.
Tensors recurrent(const Call& c, const Kind& kind) {
  const bool batch_first = is_batch_first(c);
  const Tensor x = batch_first ? c.in(0).transpose(0, 1) : c.in(0);
  const std::string way = c.text("direction", "forward");
  const std::int64_t directions = way == "bidirectional" ? 2 : 1;
  Tensors all;
  Tensors hidden;
  Tensors cell;
  for (std::int64_t i = 0; i < directions; ++i) {
    Direction d = direction_of(c, kind, i, x.size(1));
    all.push_back(run_direction(c, kind, d, x, i == 1 || way == "reverse"));
    hidden.push_back(d.hidden);
    cell.push_back(d.cell);
  }
  if (!batch_first) return {at::stack(all, 1), at::stack(hidden), at::stack(cell)};
  return {at::stack(all, 2).transpose(0, 1), at::stack(hidden, 1), at::stack(cell, 1)};
}

Tensors lstm(const Call& c) {
  return recurrent(c, {4, {"Sigmoid", "Tanh", "Tanh"}, step_lstm});
}
Tensors gru(const Call& c) {
  return recurrent(c, {3, {"Sigmoid", "Tanh"}, step_gru});
}
Tensors rnn(const Call& c) {
  return recurrent(c, {1, {"Tanh"}, step_rnn});
}

// Sorted by name.
constexpr TorchOperator kRecurrentOperators[] = {{"GRU", gru}, {"LSTM", lstm}, {"RNN", rnn}};

}  // namespace

std::span<const TorchOperator> recurrent_operators() {
  return kRecurrentOperators;
}

}  // namespace mezzo::convert
