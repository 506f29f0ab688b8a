// Sums, extremes, orders, softmax.
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;
using Dims = std::vector<std::int64_t>;

// The axes of a reduction, or nothing if an empty list means that nothing is reduced.
std::optional<Dims> axes_of(const Call& c) {
  Dims axes = c.integers("axes", 1);
  const std::int64_t rank = c.in(0).dim();
  if (axes.empty()) {
    if (c.integer("noop_with_empty_axes", 0) != 0) return std::nullopt;
    axes.resize(static_cast<std::size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (std::int64_t& axis : axes) axis = wrapped(axis, rank);
  return axes;
}

template <Tensor (*Function)(const Tensor&, const Dims&, bool keep)>
Tensors reduction(const Call& c) {
  const std::optional<Dims> axes = axes_of(c);
  if (!axes) return {c.in(0)};
  return {Function(c.in(0), *axes, c.integer("keepdims", 1) != 0)};
}

// Sums, products and powers of floats are computed in float64, so that nothing between overflows
// or loses the digits of what is rounded to float32 in the end. Integers wrap as they are.
at::ScalarType wide_type(at::ScalarType type) {
  return at::isFloatingType(type) ? at::kDouble : type;
}
Tensor wide(const Tensor& x) {
  return x.to(wide_type(x.scalar_type()));
}
Tensor sum(const Tensor& x, const Dims& axes, bool keep) {
  if (axes.empty()) return x;
  return at::sum(x, axes, keep, wide_type(x.scalar_type())).to(x.scalar_type());
}
Tensor mean(const Tensor& x, const Dims& axes, bool keep) {
  if (axes.empty()) return x;
  return at::mean(x.to(at::kDouble), axes, keep).to(x.scalar_type());
}
/// The least or the largest value of a type.
at::Scalar limit_of(at::ScalarType type, bool largest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (at::isFloatingType(type)) return largest ? kInfinity : -kInfinity;
  const bool is_signed = type != at::kBool && type != at::kByte;
  const std::size_t bits = type == at::kBool ? 1 : 8 * c10::elementSize(type) - is_signed;
  const std::int64_t most =
      std::numeric_limits<std::int64_t>::max() >> (63 - std::min<std::size_t>(bits, 63));
  if (largest) return most;
  return is_signed ? -most - 1 : std::int64_t{0};
}

/// The extreme of nothing is the least value of the type, or the largest; at::amax refuses it.
Tensor extreme(const Tensor& x, const Dims& axes, bool keep, bool largest) {
  if (axes.empty()) return x;
  const bool is_empty =
      std::ranges::any_of(axes, [&](std::int64_t axis) { return x.size(axis) == 0; });
  if (!is_empty) return largest ? at::amax(x, axes, keep) : at::amin(x, axes, keep);
  return x.sum(axes, keep, x.scalar_type()).fill_(limit_of(x.scalar_type(), !largest));
}
Tensor largest(const Tensor& x, const Dims& axes, bool keep) {
  return extreme(x, axes, keep, true);
}
Tensor smallest(const Tensor& x, const Dims& axes, bool keep) {
  return extreme(x, axes, keep, false);
}
Tensor product(const Tensor& x, const Dims& axes, bool keep) {
  Tensor result = wide(x);
  Dims sorted = axes;
  std::ranges::sort(sorted, std::greater<>());
  for (const std::int64_t axis : sorted)
    result = at::prod(result, axis, keep, result.scalar_type());
  return result.to(x.scalar_type());
}
Tensor l1(const Tensor& x, const Dims& axes, bool keep) {
  return sum(at::abs(x), axes, keep);
}
Tensor squares(const Tensor& x, const Dims& axes, bool keep) {
  return sum(at::mul(wide(x), wide(x)), axes, keep).to(x.scalar_type());
}
Tensor l2(const Tensor& x, const Dims& axes, bool keep) {
  return at::sqrt(squares(x.to(at::kDouble), axes, keep)).to(x.scalar_type());
}
Tensor log_sum(const Tensor& x, const Dims& axes, bool keep) {
  return at::log(sum(wide(x), axes, keep)).to(x.scalar_type());
}
Tensor log_sum_exp(const Tensor& x, const Dims& axes, bool keep) {
  return axes.empty() ? x : at::logsumexp(wide(x), axes, keep).to(x.scalar_type());
}

template <bool kLargest>
Tensors position(const Call& c) {
  Tensor x = c.in(0);
  const std::int64_t axis = wrapped(c.integer("axis", 0), x.dim());
  const bool last = c.integer("select_last_index", 0) != 0;
  if (last) x = at::flip(x, axis);
  const bool keep = c.integer("keepdims", 1) != 0;
  const Tensor found = kLargest ? at::argmax(x, axis, keep) : at::argmin(x, axis, keep);
  return {last ? at::sub(at::sub(at::zeros_like(found), found), 1 - x.size(axis)) : found};
}

/// Equal values keep their order, which at::topk does not promise.
Tensors top_k(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t k = c.is_given("k") ? c.integer("k", 1) : c.list(1).at(0);
  const std::int64_t axis = wrapped(c.integer("axis", -1), x.dim());
  if (k > x.size(axis)) refuse("k is ", k, ", and the axis has ", x.size(axis), " elements");
  const auto [values, indices] = at::sort(x, /*stable=*/true, axis, c.integer("largest", 1) != 0);
  return {values.narrow(axis, 0, k).contiguous(), indices.narrow(axis, 0, k).contiguous()};
}

Tensors cumulative_sum(const Call& c) {
  const Tensor& x = c.in(0);
  const std::int64_t axis = wrapped(c.list(1).at(0), x.dim());
  const bool reverse = c.integer("reverse", 0) != 0;
  const Tensor way = reverse ? at::flip(x, axis) : x;
  Tensor result = at::cumsum(way, axis, wide_type(x.scalar_type())).to(x.scalar_type());
  if (c.integer("exclusive", 0) != 0 && x.size(axis) > 0) {
    // Moved on by one: taking each value away again would leave what it rounded off, or NaN.
    const Tensor zero = at::zeros_like(result.narrow(axis, 0, 1));
    result = at::cat({zero, result.narrow(axis, 0, x.size(axis) - 1)}, axis);
  }
  return {reverse ? at::flip(result, axis) : result};
}

// Until opset 12 the axes from `axis` on were one.
template <Tensor (*Function)(const Tensor&)>
Tensors along(const Call& c) {
  const Tensor& x = c.in(0);
  const bool flattens = c.opset() < 13;
  const std::int64_t axis = wrapped(c.integer("axis", flattens ? 1 : -1), x.dim());
  if (!flattens) return {Function(x.movedim(axis, -1)).movedim(-1, axis)};
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i < axis; ++i) rows *= x.size(i);
  return {Function(x.reshape({rows, rows == 0 ? 0 : x.numel() / rows})).reshape(x.sizes())};
}

Tensor softmax(const Tensor& x) {
  return at::softmax(x, -1);
}
Tensor log_softmax(const Tensor& x) {
  return at::log_softmax(x, -1);
}
Tensor hardmax(const Tensor& x) {
  return at::zeros_like(x).scatter(-1, at::argmax(x, -1, true), 1);
}

// The loss of log-probabilities; labels that are ignored weigh nothing.
Tensor likelihood_loss(const Call& c, const Tensor& log_probabilities) {
  const std::string how = c.text("reduction", "mean");
  const std::int64_t reduction = how == "none" ? 0 : how == "mean" ? 1 : 2;
  const auto weight = c.has(2) ? std::optional(c.in(2)) : std::nullopt;
  return at::nll_loss_nd(log_probabilities, c.in(1).to(at::kLong), weight, reduction,
                         c.integer("ignore_index", std::numeric_limits<std::int32_t>::min()));
}

Tensors negative_log_likelihood(const Call& c) {
  return {likelihood_loss(c, c.in(0))};
}

Tensors softmax_cross_entropy(const Call& c) {
  const Tensor logs = at::log_softmax(c.in(0), 1);
  return {likelihood_loss(c, logs), logs};
}

// Sorted by name.
constexpr TorchOperator kReductionsOperators[] = {
    {"ArgMax", position<true>},
    {"ArgMin", position<false>},
    {"CumSum", cumulative_sum},
    {"Hardmax", along<hardmax>},
    {"LogSoftmax", along<log_softmax>},
    {"NegativeLogLikelihoodLoss", negative_log_likelihood},
    {"ReduceL1", reduction<l1>},
    {"ReduceL2", reduction<l2>},
    {"ReduceLogSum", reduction<log_sum>},
    {"ReduceLogSumExp", reduction<log_sum_exp>},
    {"ReduceMax", reduction<largest>},
    {"ReduceMean", reduction<mean>},
    {"ReduceMin", reduction<smallest>},
    {"ReduceProd", reduction<product>},
    {"ReduceSum", reduction<sum>},
    {"ReduceSumSquare", reduction<squares>},
    {"Softmax", along<softmax>},
    {"SoftmaxCrossEntropyLoss", softmax_cross_entropy},
    {"TopK", top_k},
};

}  // namespace

std::span<const TorchOperator> reduction_operators() {
  return kReductionsOperators;
}

}  // namespace mezzo::convert
