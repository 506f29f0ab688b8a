// The optimizers of ai.onnx.preview.training. Inputs are the learning rate, the count of steps, and
// then lists: weights, gradients, states.
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>

#include <cmath>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

/// The lists behind the learning rate and the count.
class Lists {
 public:
  Lists(const Call& c, std::size_t lists) : c_(c), count_((c.inputs() - 2) / lists) {
    if (c.inputs() < 2 + lists || (c.inputs() - 2) % lists != 0)
      refuse(c.inputs(), " inputs are no ", lists, " lists of one length");
  }
  std::size_t size() const { return count_; }
  double rate() const { return c_.in(0).item<double>(); }
  double step() const { return c_.in(1).item<double>(); }
  const Tensor& at(std::size_t list, std::size_t i) const { return c_.in(2 + list * count_ + i); }
  /// The gradient with the decay of the weight.
  Tensor gradient(std::size_t i) const {
    return at::add(at(1, i), at(0, i), c_.number("norm_coefficient", 0));
  }

 private:
  const Call& c_;
  std::size_t count_;
};

Tensors joined(std::initializer_list<Tensors> lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Tensors adagrad(const Call& c) {
  const Lists lists(c, 3);
  const double rate = lists.rate() / (1 + lists.step() * c.number("decay_factor", 0));
  Tensors weights;
  Tensors sums;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const Tensor g = lists.gradient(i);
    sums.push_back(at::add(lists.at(2, i), at::mul(g, g)));
    const Tensor root = at::add(at::sqrt(sums.back()), c.number("epsilon", 0));
    weights.push_back(at::sub(lists.at(0, i), at::div(g, root), rate));
  }
  return joined({weights, sums});
}

Tensors adam(const Call& c) {
  const Lists lists(c, 4);
  const double alpha = c.number("alpha", 0.9F);
  const double beta = c.number("beta", 0.999F);
  double rate = lists.rate();
  if (const double t = lists.step(); t > 0)
    rate *= std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t));
  Tensors weights;
  Tensors first;
  Tensors second;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const Tensor g = lists.gradient(i);
    first.push_back(at::add(at::mul(lists.at(2, i), alpha), g, 1 - alpha));
    second.push_back(at::add(at::mul(lists.at(3, i), beta), at::mul(g, g), 1 - beta));
    const Tensor root = at::add(at::sqrt(second.back()), c.number("epsilon", 0));
    const Tensor moved = at::sub(lists.at(0, i), at::div(first.back(), root), rate);
    weights.push_back(at::mul(moved, 1 - c.number("norm_coefficient_post", 0)));
  }
  return joined({weights, first, second});
}

Tensors momentum(const Call& c) {
  const Lists lists(c, 3);
  const double alpha = c.number("alpha", 0);
  const double beta = lists.step() > 0 ? c.number("beta", 0) : 1;
  const bool is_nesterov = c.text("mode", "") == "nesterov";
  Tensors weights;
  Tensors buffers;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const Tensor g = lists.gradient(i);
    buffers.push_back(at::add(at::mul(lists.at(2, i), alpha), g, beta));
    const Tensor direction = is_nesterov ? at::add(g, buffers.back(), alpha) : buffers.back();
    weights.push_back(at::sub(lists.at(0, i), direction, lists.rate()));
  }
  return joined({weights, buffers});
}

// Sorted by name.
constexpr TorchOperator kTrainingOperators[] = {
    {"Adagrad", adagrad},
    {"Adam", adam},
    {"Momentum", momentum},
};

}  // namespace

std::span<const TorchOperator> training_operators() {
  return kTrainingOperators;
}

}  // namespace mezzo::convert
