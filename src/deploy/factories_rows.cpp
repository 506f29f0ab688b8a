// Tensors that are made of sizes.
#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// Has the sizes of the result, or of the tensor that is imitated.
Names filled(C c, const OnnxValue* value, double otherwise) {
  const at::ScalarType type = c.out_type();
  const std::string shape = c.takes("size") ? c.list("size") : c.one("Shape", {c.x()});
  if (value != nullptr && !value->is_constant())
    return {c.one("Expand", {c.as(*value, type), shape})};
  const double number = value != nullptr ? value->to_double() : otherwise;
  return {c.one("ConstantOfShape", {shape},
                {{"value", at::full({1}, number, at::TensorOptions(type))}})};
}

Names range(C c) {
  const at::ScalarType type =
      c.out_type() == at::kLong || c.out_type() == at::kInt ? c.out_type() : at::kFloat;
  const auto number = [&](std::string_view name, double otherwise) {
    if (!c.has(name)) return c.g.number(otherwise, type);
    if (c.arg(name).is_constant()) return c.g.number(c.d(name), type);
    return c.one("Squeeze", {c.x(name, type)});
  };
  const std::string all = c.one("Range", {number("start", 0), number("end", 0), number("step", 1)});
  return {c.g.cast(all, type, c.out_type())};
}

Names unit_matrix(C c) {
  const std::string rows = c.list("n"), columns = c.has("m") ? c.list("m") : rows;
  const std::string zero =
      c.one("ConstantOfShape", {c.one("Concat", {rows, columns}, {{"axis", std::int64_t{0}}})},
            {{"value", at::zeros({1}, at::TensorOptions(c.out_type()))}});
  return {c.one("EyeLike", {zero}, {{"dtype", onnx_type(c.out_type())}})};
}

Names grid(C c) {
  Names made;
  const std::vector<OnnxValue> tensors = c.arg("tensors").elements();
  const auto count = static_cast<std::int64_t>(tensors.size());
  const bool swaps = c.has("indexing") && c.s("indexing") == "xy";
  Names flat, sizes;
  for (const OnnxValue& tensor : tensors) {
    flat.push_back(c.one("Reshape", {c.g.name_of(tensor), c.g.ints({-1})}));
    sizes.push_back(c.one("Shape", {flat.back()}));
  }
  if (swaps && count > 1) std::swap(sizes[0], sizes[1]);
  const std::string shape = c.one("Concat", sizes, {{"axis", std::int64_t{0}}});
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = swaps && i < 2 ? 1 - i : i;
    std::vector<std::int64_t> own(static_cast<std::size_t>(count), 1);
    own[static_cast<std::size_t>(place)] = -1;
    made.push_back(c.one(
        "Expand", {c.one("Reshape", {flat[static_cast<std::size_t>(i)], c.g.ints(own)}), shape}));
  }
  return made;
}

/// A tensor of a number, or of a list of numbers, which may be in lists again.
Names made_of_numbers(C c) {
  const at::ScalarType type = c.out_type();
  if (!c.takes("data")) return {c.as(c.arg("t"), type)};
  if (example_of(c.arg("data"), 0).isTensor()) return {c.x("data", type)};
  std::vector<OnnxValue> numbers;
  detail::leaves_of(c.arg("data"), &numbers);
  Names parts;
  for (const OnnxValue& number : numbers) {
    const bool is_number = !example_of(number, 0).isList();
    parts.push_back(is_number ? c.one("Reshape", {c.as(number, type), c.g.ints({1})})
                              : c.g.cast(c.g.list_of(number), at::kLong, type));
  }
  const std::string flat =
      parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", std::int64_t{0}}});
  if (c.out_rank() == 1) return {flat};
  return {c.one("Reshape", {flat, c.g.ints(c.result().toTensor().sizes().vec())})};
}

/// new_zeros, new_ones, new_full: the type of a tensor, sizes of their own.
constexpr Row kFactories[] = {
    {"zeros empty zeros_like empty_like new_zeros", 13, [](C c) { return filled(c, nullptr, 0); }},
    {"ones ones_like new_ones", 13, [](C c) { return filled(c, nullptr, 1); }},
    {"full full_like new_full", 13, [](C c) { return filled(c, &c.arg("fill_value"), 0); }},
    {"new_empty zero", 13, [](C c) { return filled(c, nullptr, 0); }},
    {"fill", 13, [](C c) { return filled(c, &c.arg("value"), 0); }},
    {"arange range", 13, range},
    {"eye", 13, unit_matrix},
    {"meshgrid", 13, grid},
    {"broadcast_tensors", 13,
     [](C c) {
       std::string shape;
       Names made;
       for (const OnnxValue& tensor : c.arg("tensors").elements()) {
         const std::string zero =
             c.one("Mul", {c.g.cast(c.g.name_of(tensor),
                                    example_of(tensor, 0).toTensor().scalar_type(), at::kLong),
                           c.g.integer(0)});
         shape = shape.empty() ? zero : c.one("Add", {shape, zero});
       }
       for (const OnnxValue& tensor : c.arg("tensors").elements())
         made.push_back(c.one("Expand", {c.g.name_of(tensor), c.one("Shape", {shape})}));
       return made;
     }},
    {"tensor as_tensor", 13, made_of_numbers},
    {"scalar_tensor", 13, [](C c) { return Names{c.as(c.arg("s"), c.out_type())}; }},
};

}  // namespace

std::span<const Row> factory_rows() {
  return kFactories;
}

}  // namespace mezzo::deploy::detail
