#include "rnn/time_loop.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <utility>

#include "casting/whole_call.h"

namespace mezzo::rnn::detail {
namespace {

/// The states of one layer and direction.
struct DirectionResult {
  std::vector<Hidden> of_step;
  Hidden last;
};

LayerWeights cast_weights(const LayerWeights& weights, casting::WholeCall& whole) {
  LayerWeights cast = weights;
  for (at::Tensor* each :
       {&cast.weight_ih, &cast.weight_hh, &cast.bias_ih, &cast.bias_hh, &cast.weight_hr}) {
    *each = whole.argument(*each);
  }
  for (at::Tensor& each : cast.extra_tensors) each = whole.argument(each);
  return cast;
}

class Direction {
 public:
  Direction(const LoopCall& call, const LayerWeights& weights, const Steps& x)
      : call_(call), weights_(weights), sizes_(x.batch_sizes) {
    gates_ = split(at::linear(x.rows, weights.weight_ih, weights.bias_ih));
    for (std::size_t i = 0; i < weights.extra.size(); ++i) {
      if (weights.extra[i].multiplies_input) {
        products_.push_back(split(at::linear(x.rows, weights.extra_tensors[i])));
      } else {
        step_.weights.push_back(weights.extra_tensors[i]);
      }
    }
    step_.weight_hh = weights.weight_hh;
    step_.bias_hh = weights.bias_hh;
    step_.products.resize(products_.size());
  }

  // Sequences that end early leave the batch.
  DirectionResult forwards(Hidden now) {
    DirectionResult result;
    std::vector<std::vector<at::Tensor>> ended(now.size());
    for (std::size_t t = 0; t < sizes_.size(); ++t) {
      const std::int64_t before = now.front().size(0);
      for (std::size_t i = 0; sizes_[t] < before && i < now.size(); ++i) {
        ended[i].push_back(now[i].narrow(0, sizes_[t], before - sizes_[t]));
        now[i] = now[i].narrow(0, 0, sizes_[t]);
      }
      now = after(t, std::move(now));
      result.of_step.push_back(now);
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      ended[i].push_back(now[i]);
      std::ranges::reverse(ended[i]);
      result.last.push_back(ended[i].size() == 1 ? now[i] : at::cat(ended[i]));
    }
    return result;
  }

  // They join it on the way back.
  DirectionResult backwards(const Hidden& start) {
    DirectionResult result;
    result.of_step.resize(sizes_.size());
    Hidden now;
    for (const at::Tensor& each : start) now.push_back(each.narrow(0, 0, sizes_.back()));
    for (std::size_t t = sizes_.size(); t-- > 0;) {
      const std::int64_t before = now.front().size(0);
      for (std::size_t i = 0; sizes_[t] > before && i < now.size(); ++i)
        now[i] = at::cat({now[i], start[i].narrow(0, before, sizes_[t] - before)});
      now = after(t, std::move(now));
      result.of_step[t] = now;
    }
    result.last = now;
    return result;
  }

 private:
  std::vector<at::Tensor> split(const at::Tensor& rows) const {
    return at::split_with_sizes(rows, sizes_);
  }

  Hidden after(std::size_t t, Hidden before) {
    step_.gates = gates_[t];
    for (std::size_t i = 0; i < products_.size(); ++i) step_.products[i] = products_[i][t];
    step_.hidden = std::move(before);
    Hidden next = call_.definition.cell.step(step_);
    check(next);
    if (weights_.weight_hr.defined()) next[0] = at::linear(next[0], weights_.weight_hr);
    return next;
  }

  void check(const Hidden& next) const {
    const std::int64_t wanted = step_.gates.size(0);
    const std::int64_t size = call_.options.hidden_size;
    const bool fits = next.size() == step_.hidden.size() &&
                      std::ranges::all_of(next, [&](const at::Tensor& each) {
                        return each.defined() && each.dim() == 2 && each.size(0) == wanted &&
                               each.size(1) == size;
                      });
    if (fits) return;
    raise<ConfigError>(
        "rnn::" + call_.definition.name, "the cell's step returned ", next.size(), " states",
        next.empty() || !next[0].defined() ? std::string()
                                           : ", the first of sizes " + c10::str(next[0].sizes()),
        "; expected ", step_.hidden.size(), " of sizes [", wanted, ", ", size, "]");
  }

  const LoopCall& call_;
  const LayerWeights& weights_;
  const std::vector<std::int64_t>& sizes_;
  std::vector<at::Tensor> gates_;
  std::vector<std::vector<at::Tensor>> products_;  // by weight, then step
  Step step_;
};

/// The i-th state of all steps, as rows.
at::Tensor joined(const std::vector<Hidden>& of_step, std::size_t i) {
  std::vector<at::Tensor> parts;
  parts.reserve(of_step.size());
  for (const Hidden& each : of_step) parts.push_back(each[i]);
  return at::cat(parts);
}

}  // namespace

LoopResult run_time_loop(const LoopCall& call) {
  std::vector<at::Tensor> inputs = call.hidden;
  inputs.push_back(call.x.rows);
  std::vector<at::Tensor> all_weights;
  for (const LayerWeights& each : call.weights) {
    for (const at::Tensor& weight : each.all()) all_weights.push_back(weight);
  }
  casting::WholeCall whole(call.definition.row, inputs, all_weights);

  const std::size_t states = call.hidden.size();
  Hidden start;
  for (const at::Tensor& each : call.hidden) start.push_back(whole.argument(each));
  Steps x{whole.argument(call.x.rows), call.x.batch_sizes};
  std::vector<std::vector<at::Tensor>> last(states), collected(states);
  const std::int64_t directions = call.options.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < call.options.num_layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const std::int64_t place = layer * directions + direction;
      const LayerWeights weights =
          cast_weights(call.weights[static_cast<std::size_t>(place)], whole);
      Hidden own;
      for (const at::Tensor& each : start) own.push_back(each.select(0, place));
      Direction run(call, weights, x);
      const DirectionResult result = direction == 0 ? run.forwards(own) : run.backwards(own);
      outputs.push_back(joined(result.of_step, 0));
      for (std::size_t i = 0; i < states; ++i) {
        last[i].push_back(result.last[i]);
        if (!call.collect_hidden) continue;
        collected[i].push_back(i == 0 ? outputs.back() : joined(result.of_step, i));
      }
    }
    x.rows = directions == 1 ? outputs.front() : at::cat(outputs, 1);
    if (layer + 1 < call.options.num_layers)
      x.rows = at::dropout(x.rows, call.options.dropout, call.training);
  }
  LoopResult result{whole.result(x.rows), {}, {}};
  for (std::size_t i = 0; i < states; ++i) {
    result.last.push_back(whole.result(at::stack(last[i])));
    if (call.collect_hidden) result.collected.push_back(whole.result(at::stack(collected[i], 1)));
  }
  return result;
}

}  // namespace mezzo::rnn::detail
