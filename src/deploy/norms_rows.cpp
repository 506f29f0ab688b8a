// Normalizations.
#include <numeric>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

std::string given_or(C c, std::string_view name, double value, std::int64_t channels) {
  if (c.has(name)) return c.x(name);
  return c.g.tensor(at::full({channels}, value, at::TensorOptions(c.out_type())));
}

/// Mean and variance over these axes, then scale and shift.
std::string normalized(C c, const std::string& x, const std::vector<std::int64_t>& axes,
                       std::int64_t rank, double eps) {
  const std::string off = c.one("Sub", {x, c.reduced("ReduceMean", x, axes, true, rank)});
  const std::string variance = c.reduced("ReduceMean", c.one("Mul", {off, off}), axes, true, rank);
  return c.one("Div", {off, c.one("Sqrt", {c.one("Add", {variance, c.constant(eps)})})});
}

/// With the statistics of the batch.
Names batch_norm_of_batch(C c) {
  std::vector<std::int64_t> axes, behind;
  for (std::int64_t d = 0; d < c.rank("input"); ++d) {
    if (d != 1) axes.push_back(d);
    if (d > 1) behind.push_back(d - 1);
  }
  std::string y = normalized(c, c.x("input"), axes, c.rank("input"), c.d("eps"));
  const auto spread = [&](std::string_view name) { return c.unsqueezed(c.x(name), behind); };
  if (c.has("weight")) y = c.one("Mul", {y, spread("weight")});
  return {c.has("bias") ? c.one("Add", {y, spread("bias")}) : y};
}

Names batch_norm(C c) {
  if (!c.has("running_mean")) return batch_norm_of_batch(c);
  const std::int64_t channels = c.fixed_size("input", 1);
  return {c.one("BatchNormalization",
                {c.x("input"), given_or(c, "weight", 1, channels), given_or(c, "bias", 0, channels),
                 c.x("running_mean"), c.x("running_var")},
                {{"epsilon", c.d("eps")}})};
}

Names instance_norm(C c) {
  if (c.has("running_mean") && !c.b("use_input_stats")) return batch_norm(c);
  const std::int64_t channels = c.fixed_size("input", 1);
  return {
      c.one("InstanceNormalization",
            {c.x("input"), given_or(c, "weight", 1, channels), given_or(c, "bias", 0, channels)},
            {{"epsilon", c.d("eps")}})};
}

Names layer_norm(C c) {
  const auto count = static_cast<std::int64_t>(c.is("normalized_shape").size());
  const std::int64_t axis = c.rank("input") - count;
  if (c.g.opset() >= 17) {
    std::string weight = c.x("weight");
    if (!c.has("weight"))
      weight = c.g.tensor(at::ones(c.is("normalized_shape"), at::TensorOptions(c.out_type())));
    Names in = {c.x("input"), weight};
    if (c.has("bias")) in.push_back(c.x("bias"));
    return {c.one("LayerNormalization", in, {{"axis", axis}, {"epsilon", c.d("eps")}})};
  }
  std::vector<std::int64_t> axes(static_cast<std::size_t>(count));
  std::iota(axes.begin(), axes.end(), axis);
  std::string y = normalized(c, c.x("input"), axes, c.rank("input"), c.d("eps"));
  if (c.has("weight")) y = c.one("Mul", {y, c.x("weight")});
  return {c.has("bias") ? c.one("Add", {y, c.x("bias")}) : y};
}

std::string by_channel(C c, std::string_view name) {
  const std::int64_t rank = c.rank("input");
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank - 1), 1);
  sizes[0] = c.fixed_size("input", 1);
  if (c.is_fixed(name))
    return c.g.tensor(c.example(name).reshape(sizes), c.arg(name).operand()->path);
  return c.one("Reshape", {c.x(name), c.g.ints(sizes)});
}

Names group_norm(C c) {
  const std::int64_t groups = c.i(c.takes("group") ? "group" : "num_groups"),
                     rank = c.rank("input");
  if (c.g.opset() >= 21 && c.has("weight") && c.has("bias"))
    return {c.one("GroupNormalization", {c.x("input"), c.x("weight"), c.x("bias")},
                  {{"num_groups", groups}, {"epsilon", c.d("eps")}})};
  const std::string x = c.x("input");
  const std::string parts = c.one("Reshape", {x, c.g.ints({0, groups, -1})});
  const auto filled = [&](double value) {
    return c.g.tensor(at::full({groups}, value, at::TensorOptions(c.out_type())));
  };
  const std::string done =
      c.one("InstanceNormalization", {parts, filled(1), filled(0)}, {{"epsilon", c.d("eps")}});
  std::vector<std::int64_t> sizes;
  std::int64_t open = 0;
  for (std::int64_t d = 0; d < rank; ++d) {
    sizes.push_back(d == 0 ? 0 : c.fixed_size("input", d));
    open += sizes.back() < 0;
  }
  std::string y = c.one("Reshape", {done, open <= 1 ? c.g.ints(sizes) : c.one("Shape", {x})});
  if (c.has("weight")) y = c.one("Mul", {y, by_channel(c, "weight")});
  return {c.has("bias") ? c.one("Add", {y, by_channel(c, "bias")}) : y};
}

Names rms_norm(C c) {
  const auto count = static_cast<std::int64_t>(c.is("normalized_shape").size());
  std::vector<std::int64_t> axes(static_cast<std::size_t>(count));
  std::iota(axes.begin(), axes.end(), c.rank("input") - count);
  const std::string x = c.x("input");
  const double eps = c.has("eps") ? c.d("eps") : 1.1920928955078125e-07;
  const std::string mean =
      c.reduced("ReduceMean", c.one("Mul", {x, x}), axes, true, c.rank("input"));
  const std::string y = c.one("Div", {x, c.one("Sqrt", {c.one("Add", {mean, c.constant(eps)})})});
  return {c.has("weight") ? c.one("Mul", {y, c.x("weight")}) : y};
}

constexpr Row kNorms[] = {
    {"batch_norm", 13, batch_norm},
    {"instance_norm", 13, instance_norm},
    {"layer_norm native_layer_norm", 13, layer_norm},
    {"group_norm native_group_norm", 13, group_norm},
    {"rms_norm", 13, rms_norm},
    {"native_batch_norm", 13,
     [](C c) {
       if (c.b("training")) c.refuse("statistics of the batch are those of training");
       return batch_norm(c);
     }},
};

}  // namespace

std::span<const Row> norm_rows() {
  return kNorms;
}

}  // namespace mezzo::deploy::detail
