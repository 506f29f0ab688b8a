// The arithmetic of a step, and which cell each module has.
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>

#include "operators/operators.h"
#include "rnn/definition.h"

namespace mezzo::rnn::detail {
namespace {

constexpr std::int64_t kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3;  // cuDNN's modes

casting::Row row_named(const char* name) {
  return {*index_of(name), name};
}

at::Tensor times_hidden(const Step& step, const at::Tensor& hidden) {
  return at::linear(hidden, step.weight_hh, step.bias_hh);
}

/// Gates in LibTorch's order: input, forget, cell, output.
Hidden lstm_states(const at::Tensor& gates, const at::Tensor& cell) {
  const std::vector<at::Tensor> gate = gates.chunk(4, 1);
  const at::Tensor written = at::mul(at::sigmoid(gate[0]), at::tanh(gate[2]));
  const at::Tensor next = at::addcmul(written, at::sigmoid(gate[1]), cell);
  return {at::mul(at::sigmoid(gate[3]), at::tanh(next)), next};
}

std::vector<ExtraWeight> mlstm_weights(const LayerSizes& sizes) {
  return {{.name = "weight_mih", .shape = {sizes.output, sizes.input}, .multiplies_input = true},
          {.name = "weight_mhh", .shape = {sizes.output, sizes.output}}};
}

using Shared = std::shared_ptr<const Definition>;

}  // namespace

Hidden lstm_step(const Step& step) {
  return lstm_states(at::add(step.gates, times_hidden(step, step.hidden[0])), step.hidden[1]);
}

// Gates in LibTorch's order: reset, update, new. With a projection the state that is blended is the
// second one, which has the size of the gates.
Hidden gru_step(const Step& step) {
  const at::Tensor& before = step.hidden.back();
  const std::vector<at::Tensor> of_input = step.gates.chunk(3, 1);
  const std::vector<at::Tensor> of_hidden = times_hidden(step, step.hidden[0]).chunk(3, 1);
  const at::Tensor reset = at::sigmoid(at::add(of_input[0], of_hidden[0]));
  const at::Tensor update = at::sigmoid(at::add(of_input[1], of_hidden[1]));
  const at::Tensor fresh = at::tanh(at::addcmul(of_input[2], reset, of_hidden[2]));
  const at::Tensor next = at::addcmul(fresh, update, at::sub(before, fresh));
  return step.hidden.size() == 1 ? Hidden{next} : Hidden{next, next};
}

Hidden relu_step(const Step& step) {
  return {at::relu(at::add(step.gates, times_hidden(step, step.hidden[0])))};
}

Hidden tanh_step(const Step& step) {
  return {at::tanh(at::add(step.gates, times_hidden(step, step.hidden[0])))};
}

Hidden mlstm_step(const Step& step) {
  const at::Tensor m = at::mul(step.products[0], at::linear(step.hidden[0], step.weights[0]));
  return lstm_states(at::add(step.gates, times_hidden(step, m)), step.hidden[1]);
}

Shared lstm_definition() {
  static const Shared definition =
      std::make_shared<Definition>(Definition{.name = "LSTM",
                                              .cell = {.gates = 4, .states = 2, .step = lstm_step},
                                              .row = row_named("lstm.input"),
                                              .kernel = lstm_kernel,
                                              .kernel_projects = true,
                                              .cudnn_mode = kLstm});
  return definition;
}

Shared gru_definition(const Options& options) {
  const auto make = [](std::int64_t states) -> Shared {
    return std::make_shared<Definition>(
        Definition{.name = "GRU",
                   .cell = {.gates = 3, .states = states, .step = gru_step},
                   .row = row_named("gru.input"),
                   .kernel = gru_kernel,
                   .cudnn_mode = kGru});
  };
  static const Shared plain = make(1);
  static const Shared projecting = make(2);
  const bool projects = options.output_size.value_or(options.hidden_size) != options.hidden_size;
  return projects ? projecting : plain;
}

Shared relu_definition() {
  static const Shared definition =
      std::make_shared<Definition>(Definition{.name = "ReLU",
                                              .cell = {.step = relu_step},
                                              .row = row_named("rnn_relu.input"),
                                              .kernel = relu_kernel,
                                              .cudnn_mode = kRelu});
  return definition;
}

Shared tanh_definition() {
  static const Shared definition =
      std::make_shared<Definition>(Definition{.name = "Tanh",
                                              .cell = {.step = tanh_step},
                                              .row = row_named("rnn_tanh.input"),
                                              .kernel = tanh_kernel,
                                              .cudnn_mode = kTanh});
  return definition;
}

Shared mlstm_definition() {
  static const Shared definition = std::make_shared<Definition>(Definition{
      .name = "mLSTM",
      .cell = {.gates = 4, .states = 2, .step = mlstm_step, .extra_weights = mlstm_weights},
      .row = row_named("lstm.input")});
  return definition;
}

Shared own_definition(Cell cell) {
  if (!cell.step || cell.gates < 1 || cell.states < 1) {
    raise<ConfigError>("rnn::Recurrent", "the cell has ", cell.gates, " gates, ", cell.states,
                       " states and ", cell.step ? "a step" : "no step",
                       "; expected a step, and at least one gate and one state");
  }
  return std::make_shared<Definition>(
      Definition{.name = "Recurrent", .cell = std::move(cell), .row = row_named("lstm.input")});
}

}  // namespace mezzo::rnn::detail
