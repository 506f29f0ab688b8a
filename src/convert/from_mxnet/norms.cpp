// Normalizations and softmax.
#include <numeric>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

// Results beside the first are statistics, which networks in use do not read.
Operands with_statistics(Operand result, std::size_t more) {
  Operands results{std::move(result)};
  results.resize(1 + more);
  return results;
}

Operand ones_like_parameter(Call& call, const Operand& parameter) {
  const Dims& dims = call.dims(parameter);
  return call.writer.floats(dims, std::vector<float>(static_cast<std::size_t>(product(dims)), 1));
}

Operand swapped_with_1(Call& call, const Operand& x, std::int64_t axis) {
  Dims order(static_cast<std::size_t>(call.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.at(1), order.at(static_cast<std::size_t>(axis)));
  return call.transpose(x, order);
}

Operands batch_norm(Call& call) {
  Operand x = call.input(0);
  const std::int64_t axis = call.axis_of(call.integer("axis", 1), x);
  if (axis != 1) x = swapped_with_1(call, x, axis);
  const Operand gamma =
      call.flag("fix_gamma", true) ? ones_like_parameter(call, call.input(1)) : call.input(1);
  const auto epsilon = static_cast<float>(call.number("eps", 1e-3));
  Operand result =
      call.add("BatchNormalization", {x, gamma, call.input(2), call.input(3), call.input(4)},
               {{"epsilon", epsilon}}, form_of(x));
  if (axis != 1) result = swapped_with_1(call, result, axis);
  if (call.node().op == "BatchNormWithReLU") result = call.map("Relu", result);
  return with_statistics(result, 2);
}

Operands layer_norm(Call& call) {
  Operand x = call.input(0);
  const std::int64_t axis = call.integer("axis", -1);
  const auto epsilon = static_cast<float>(call.number("eps", 1e-5));
  const bool is_last = axis == -1 || call.axis_of(axis, x) == call.rank(x) - 1;
  Dims order;
  if (!is_last) {  // the axis goes last, and comes back
    order.resize(static_cast<std::size_t>(call.rank(x)));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.back(), order.at(static_cast<std::size_t>(call.axis_of(axis, x))));
    x = call.transpose(x, order);
  }
  Operand result = call.add("LayerNormalization", {x, call.input(1), call.input(2)},
                            {{"axis", std::int64_t{-1}}, {"epsilon", epsilon}}, form_of(x));
  if (!is_last) result = call.transpose(result, order);
  return with_statistics(result, 2);
}

Operands instance_norm(Call& call) {
  const auto epsilon = static_cast<float>(call.number("eps", 1e-3));
  const Operand result =
      call.add("InstanceNormalization", {call.input(0), call.input(1), call.input(2)},
               {{"epsilon", epsilon}}, form_of(call.input(0)));
  return with_statistics(result, 2);
}

// Groups are channels of an instance normalization. A factor a group is its own, as in 1.x; 2.x has
// one a channel.
Operands group_norm(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t groups = call.integer("num_groups", 1);
  constexpr std::int64_t kMostGroups = 1 << 20;
  if (groups < 1 || groups > kMostGroups)
    call.refuse("num_groups cannot be; expected 1 to 1048576");
  const auto epsilon = static_cast<float>(call.number("eps", 1e-5));
  Operand gamma = call.input(1), beta = call.input(2);
  const bool is_by_group = gamma.has_rank(1) && (*gamma.dims)[0] == groups;
  const std::vector<float> ones(static_cast<std::size_t>(groups), 1),
      zeros(static_cast<std::size_t>(groups), 0);
  const Operand flat = call.reshape(
      x, {0, groups, -1}, Dims{x.dims ? x.dims->at(0) : kUnknownSize, groups, kUnknownSize});
  Operand result = call.add("InstanceNormalization",
                            {flat, is_by_group ? gamma : call.writer.floats({groups}, ones),
                             is_by_group ? beta : call.writer.floats({groups}, zeros)},
                            {{"epsilon", epsilon}}, form_of(flat));
  result = call.add("Reshape", {result, call.sizes(x)}, {}, form_of(x));
  if (!is_by_group) {
    Dims shape(static_cast<std::size_t>(call.rank(x) - 1), 1);
    shape[0] = call.dims(gamma).at(0);
    result = call.broadcast("Mul", result, call.reshape(gamma, shape, shape));
    result = call.broadcast("Add", result, call.reshape(beta, shape, shape));
  }
  result.dims = x.dims;
  return with_statistics(result, 2);
}

Operands l2_normalization(Call& call) {
  const Operand& x = call.input(0);
  const std::string mode = call.text("mode", "instance");
  Dims axes;
  const std::int64_t first = mode == "spatial" ? 2 : 1;
  const std::int64_t end = mode == "channel" ? 2 : call.rank(x);
  for (std::int64_t axis = first; axis < end; ++axis) axes.push_back(axis);
  Dims dims = call.dims(x);
  for (const std::int64_t axis : axes) dims.at(static_cast<std::size_t>(axis)) = 1;
  const Operand squares = call.broadcast("Mul", x, x);
  const Operand sum = call.add("ReduceSum", {squares, call.writer.integers(axes)},
                               {{"keepdims", std::int64_t{1}}}, {x.element, dims});
  const Operand norm = call.map("Sqrt", call.broadcast("Add", sum, call.number("eps", 1e-10)));
  return with_statistics(call.broadcast("Div", x, norm), 1);
}

Operands local_response_norm(Call& call) {
  const Attributes attributes{{"size", call.integer("nsize", 5)},
                              {"alpha", static_cast<float>(call.number("alpha", 1e-4))},
                              {"beta", static_cast<float>(call.number("beta", 0.75))},
                              {"bias", static_cast<float>(call.number("knorm", 2))}};
  return with_statistics(call.map("LRN", call.input(0), attributes), 1);
}

// Which places along the last axis are within the lengths: one length for each row before it.
Operand within_lengths(Call& call, const Operand& x, const Operand& lengths) {
  call.dims(x, 1);
  const std::int64_t last = call.rank(x) - 1;
  const Operand count = call.squeeze(call.size(x, last), {0});
  const Operand places = call.add("Range", {call.writer.integer(0), count, call.writer.integer(1)},
                                  {}, {Element::kInt64, Dims{x.dims->back()}});
  const Operand limits = call.unsqueeze(call.cast(lengths, Element::kInt64), {-1});
  return call.add("Less", {places, limits}, {}, {Element::kBool, x.dims});
}

Operands softmax_of(Call& call, const char* op, double sign) {
  Operand x = call.input(0);
  const std::int64_t axis = call.integer("axis", -1);
  const double temperature = call.number("temperature", 1);
  if (temperature != 1 || sign != 1) x = call.broadcast("Mul", x, sign / temperature);
  const Attributes attributes{{"axis", axis}};
  if (!call.flag("use_length")) return {call.map(op, x, attributes)};
  if (call.axis_of(axis, x) != call.rank(x) - 1)
    call.refuse("lengths along another axis than the last; expected axis -1");
  const Operand is_within = within_lengths(call, x, call.input(1));
  constexpr double kLeast = -3.4e38;
  const Operand masked = call.where(is_within, x, call.writer.number(kLeast, x.element));
  return {
      call.where(is_within, call.map(op, masked, attributes), call.writer.number(0, x.element))};
}

Operands softmax(Call& call) {
  return softmax_of(call, "Softmax", 1);
}
Operands softmin(Call& call) {
  return softmax_of(call, "Softmax", -1);
}
Operands log_softmax(Call& call) {
  return softmax_of(call, "LogSoftmax", 1);
}

// Over everything behind the first dimension.
Operand softmax_of_rows(Call& call, const Operand& x) {
  if (x.has_rank(2)) return call.map("Softmax", x, {{"axis", std::int64_t{1}}});
  const Dims flat_dims{x.dims && !x.dims->empty() ? x.dims->front() : kUnknownSize, kUnknownSize};
  const Operand flat =
      call.add("Flatten", {x}, {{"axis", std::int64_t{1}}}, {x.element, flat_dims});
  const Operand result = call.map("Softmax", flat, {{"axis", std::int64_t{1}}});
  return call.add("Reshape", {result, call.sizes(x)}, {}, form_of(x));
}

Operands softmax_activation(Call& call) {
  const bool is_by_channel = call.text("mode", "instance") == "channel";
  return {call.map("Softmax", call.input(0), {{"axis", std::int64_t{is_by_channel ? 1 : -1}}})};
}

Operands softmax_output(Call& call) {
  const Operand& x = call.input(0);
  if (call.flag("multi_output")) return {call.map("Softmax", x, {{"axis", std::int64_t{1}}})};
  if (call.flag("preserve_shape")) return {call.map("Softmax", x, {{"axis", std::int64_t{-1}}})};
  return {softmax_of_rows(call, x)};
}

Operands logistic_output(Call& call) {
  return {call.map("Sigmoid", call.input(0))};
}

constexpr TranslationRow kNormRows[] = {
    {"BatchNorm BatchNorm_v1 BatchNormWithReLU CuDNNBatchNorm", batch_norm, Reads::kAll, true},
    {"_contrib_SyncBatchNorm", batch_norm, Reads::kAll, true},
    {"LayerNorm", layer_norm, Reads::kAll, true},
    {"InstanceNorm", instance_norm, Reads::kAll, true},
    {"GroupNorm", group_norm, Reads::kAll, true},
    {"L2Normalization", l2_normalization, Reads::kAll, true},
    {"LRN", local_response_norm, Reads::kAll, true},
    {"softmax", softmax, Reads::kAll, true},
    {"softmin", softmin, Reads::kAll, true},
    {"log_softmax", log_softmax, Reads::kAll, true},
    {"SoftmaxActivation", softmax_activation, Reads::kAll, true},
    {"SoftmaxOutput Softmax", softmax_output, Reads::kFirst, true},
    {"LogisticRegressionOutput", logistic_output, Reads::kFirst, true},
};

}  // namespace

std::span<const TranslationRow> norm_rows() {
  return kNormRows;
}

}  // namespace mezzo::convert::mxnet
