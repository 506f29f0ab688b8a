// One call of a recurrent module: which way it is computed, and the order of its sequences.
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "rnn/time_loop.h"

namespace mezzo::rnn::detail {
namespace {

at::Tensor in_order(const at::Tensor& states, const at::Tensor& order, std::int64_t dim) {
  return order.defined() ? at::index_select(states, dim, order) : states;
}

at::Tensor as_indices(const std::vector<std::int64_t>& values, at::Device device) {
  const at::Tensor indices = at::empty({static_cast<std::int64_t>(values.size())},
                                       at::TensorOptions(at::kCPU).dtype(at::kLong));
  std::ranges::copy(values, indices.mutable_data_ptr<std::int64_t>());
  // LibTorch has a copy of them before the call returns.
  return indices.to(device, /*non_blocking=*/true);
}

/// For each row of a packed sequence the row of the same sequence as far from the other end.
std::vector<std::int64_t> mirrored_rows(const std::vector<std::int64_t>& batch_sizes) {
  std::vector<std::int64_t> begin(batch_sizes.size() + 1);
  std::partial_sum(batch_sizes.begin(), batch_sizes.end(), begin.begin() + 1);
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(begin.back()));
  for (std::size_t t = 0; t < batch_sizes.size(); ++t) {
    for (std::int64_t b = 0; b < batch_sizes[t]; ++b) {
      const auto shorter = [b](std::int64_t size) { return size > b; };
      const auto length = std::ranges::partition_point(batch_sizes, shorter) - batch_sizes.begin();
      rows.push_back(begin[static_cast<std::size_t>(length) - 1 - t] + b);
    }
  }
  return rows;
}

/// Rows of a packed sequence as [length, batch, ...], with zeros behind the ends.
at::Tensor padded(const at::Tensor& rows, const std::vector<std::int64_t>& batch_sizes) {
  const auto length = static_cast<std::int64_t>(batch_sizes.size());
  const std::int64_t batch = batch_sizes.front();
  std::vector<std::int64_t> places;
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t b = 0; b < batch_sizes[static_cast<std::size_t>(t)]; ++b)
      places.push_back(t * batch + b);
  }
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  sizes[0] = length * batch;
  const at::Tensor all =
      at::zeros(sizes, rows.options()).index_copy(0, as_indices(places, rows.device()), rows);
  return all.unflatten(0, {length, batch});
}

}  // namespace

struct Recurrence::Call {
  at::Tensor x;
  at::Tensor packed_sizes;                // LibTorch's batch_sizes; undefined: x is padded
  std::vector<std::int64_t> batch_sizes;  // of each step
  Hidden hidden;                          // in the order of the rows
  bool collect_hidden;
  bool training;

  bool is_packed() const { return packed_sizes.defined(); }
  std::int64_t batch() const { return batch_sizes.front(); }
};

Hidden Recurrence::start_of(const Call& call, const Hidden& given) const {
  const std::int64_t batch = call.batch();
  if (std::ranges::none_of(given, [](const at::Tensor& each) { return each.defined(); })) {
    const bool has_it = !kept_.empty() && kept_.front().size(1) == batch;
    if (!has_it) return zeros(batch, call.x.options());
    Hidden states;
    for (const at::Tensor& each : kept_) states.push_back(each.to(call.x.options()));
    return states;
  }
  const std::int64_t count = definition_->cell.states;
  if (static_cast<std::int64_t>(given.size()) != count) {
    raise<ConfigError>("rnn::" + definition_->name, "got ", given.size(),
                       " states to start with; expected ", count);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor& each = given[static_cast<std::size_t>(i)];
    const std::vector<std::int64_t> wanted{rows_of_states(), batch, size_of_state(i)};
    if (each.defined() && each.sizes() == at::IntArrayRef(wanted)) continue;
    raise<ConfigError>("rnn::" + definition_->name, "state ", i, " is ",
                       each.defined() ? c10::str(each.sizes()) : std::string("undefined"),
                       "; expected [layers * directions, batch, size] = ", at::IntArrayRef(wanted));
  }
  return given;
}

/// The output, laid out as x; the last states, and behind them those of all steps, if asked for.
Output Recurrence::run(const Call& call) {
  const bool kernel = definition_->kernel != nullptr && !call.collect_hidden &&
                      (!projects() || definition_->kernel_projects);
  if (kernel) {
    const std::vector<at::Tensor> weights = flat_weights();
    return definition_->kernel({.x = call.x,
                                .batch_sizes = call.packed_sizes,
                                .hidden = call.hidden,
                                .weights = weights,
                                .options = options,
                                .training = call.training});
  }
  const bool swaps = !call.is_packed() && options.batch_first;
  const at::Tensor by_step = swaps ? call.x.transpose(0, 1) : call.x;
  const Steps steps{by_step.reshape({-1, options.input_size}), call.batch_sizes};
  LoopResult result = run_time_loop({.definition = *definition_,
                                     .options = options,
                                     .weights = weights_,
                                     .x = steps,
                                     .hidden = call.hidden,
                                     .collect_hidden = call.collect_hidden,
                                     .training = call.training});
  Hidden states = std::move(result.last);
  if (!call.is_packed()) {
    const auto length = static_cast<std::int64_t>(call.batch_sizes.size());
    result.output = result.output.unflatten(0, {length, call.batch()});
    if (swaps) result.output = result.output.transpose(0, 1);
    for (at::Tensor& each : result.collected) each = each.unflatten(0, {length, call.batch()});
  }
  states.insert(states.end(), result.collected.begin(), result.collected.end());
  return {result.output, states};
}

Output Recurrence::run(const at::Tensor& x, const Hidden& initial, ForwardOptions how,
                       bool training) {
  const std::int64_t time = options.batch_first ? 1 : 0;
  if (!x.defined() || x.dim() != 3 || x.size(2) != options.input_size || x.size(time) == 0) {
    raise<ConfigError>("rnn::" + definition_->name, "the input is ",
                       x.defined() ? c10::str(x.sizes()) : std::string("undefined"), "; expected ",
                       options.batch_first ? "[batch, length, " : "[length, batch, ",
                       options.input_size, "] with at least one step");
  }
  Call call{.x = how.reverse ? at::flip(x, {time}) : x,
            .packed_sizes = {},
            .batch_sizes =
                std::vector<std::int64_t>(static_cast<std::size_t>(x.size(time)), x.size(1 - time)),
            .hidden = {},
            .collect_hidden = how.collect_hidden,
            .training = training};
  call.hidden = start_of(call, initial);
  auto [output, states] = run(call);
  const Hidden last(states.begin(), states.begin() + definition_->cell.states);
  keep(last);
  if (how.reverse) output = at::flip(output, {time});
  if (!how.collect_hidden) return {output, last};
  Hidden collected(states.begin() + definition_->cell.states, states.end());
  for (at::Tensor& each : collected) {
    each = each.transpose(1, 2);
    if (how.reverse) each = at::flip(each, {0});
  }
  return {output, collected};
}

std::tuple<PackedSequence, Hidden> Recurrence::run(const PackedSequence& x, const Hidden& initial,
                                                   ForwardOptions how, bool training) {
  const at::Tensor& data = x.data();
  if (data.dim() != 2 || data.size(1) != options.input_size) {
    raise<ConfigError>("rnn::" + definition_->name, "the packed input has the sizes ", data.sizes(),
                       "; expected [rows, ", options.input_size, "]");
  }
  const at::Tensor sizes = x.batch_sizes().contiguous();
  Call call{.x = data,
            .packed_sizes = sizes,
            .batch_sizes = {sizes.const_data_ptr<std::int64_t>(),
                            sizes.const_data_ptr<std::int64_t>() + sizes.numel()},
            .hidden = {},
            .collect_hidden = how.collect_hidden,
            .training = training};
  at::Tensor mirrored;
  if (how.reverse) {
    mirrored = as_indices(mirrored_rows(call.batch_sizes), data.device());
    call.x = at::index_select(data, 0, mirrored);
  }
  call.hidden = start_of(call, initial);
  for (at::Tensor& each : call.hidden) each = in_order(each, x.sorted_indices(), 1);
  auto [output, states] = run(call);
  Hidden last(states.begin(), states.begin() + definition_->cell.states);
  for (at::Tensor& each : last) each = in_order(each, x.unsorted_indices(), 1);
  keep(last);
  PackedSequence result(in_order(output, mirrored, 0), x.batch_sizes(), x.sorted_indices(),
                        x.unsorted_indices());
  if (!how.collect_hidden) return {result, last};
  Hidden collected(states.begin() + definition_->cell.states, states.end());
  for (at::Tensor& each : collected) {
    each = padded(in_order(each, mirrored, 0), call.batch_sizes).transpose(1, 2);
    each = in_order(each, x.unsorted_indices(), 2);
  }
  return {result, collected};
}

}  // namespace mezzo::rnn::detail
