// The kernels that LibTorch has for whole recurrent networks.
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>

#include "rnn/definition.h"

namespace mezzo::rnn::detail {
namespace {

template <typename Operator>
auto call_kernel(const KernelCall& call, const Operator& op, const auto& hidden) {
  const Options& of = call.options;
  if (call.batch_sizes.defined()) {
    return op(call.x, call.batch_sizes, hidden, call.weights, of.bias, of.num_layers, of.dropout,
              call.training, of.bidirectional);
  }
  return op(call.x, hidden, call.weights, of.bias, of.num_layers, of.dropout, call.training,
            of.bidirectional, of.batch_first);
}

template <typename Operator>
Output with_one_state(const KernelCall& call, const Operator& op) {
  auto [output, hidden] = call_kernel(call, op, call.hidden.front());
  return {output, {hidden}};
}

}  // namespace

Output lstm_kernel(const KernelCall& call) {
  auto [output, h, c] = call_kernel(
      call, [](const auto&... arguments) { return at::lstm(arguments...); },
      at::TensorList(call.hidden));
  return {output, {h, c}};
}

Output gru_kernel(const KernelCall& call) {
  return with_one_state(call, [](const auto&... arguments) { return at::gru(arguments...); });
}

Output relu_kernel(const KernelCall& call) {
  return with_one_state(call, [](const auto&... arguments) { return at::rnn_relu(arguments...); });
}

Output tanh_kernel(const KernelCall& call) {
  return with_one_state(call, [](const auto&... arguments) { return at::rnn_tanh(arguments...); });
}

}  // namespace mezzo::rnn::detail
