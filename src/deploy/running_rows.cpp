// Values that run along an axis, and places in an order: products and maxima of all before,
// medians, quantiles.
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// A value that goes along an axis, beginning with a number that changes nothing.
struct Running {
  double begin;
  at::ScalarType type;
};

convert::MadeValue unshaped(const std::string& name, at::ScalarType type) {
  convert::MadeValue value;
  value.name = name;
  value.element = static_cast<convert::Element>(onnx_type(type));
  value.has_dims = false;
  return value;
}

/// Scans an axis of the tensors: `next` makes the states of the ones before and of the elements.
/// Gives all states.
Names scanned(C c, std::int64_t axis, const std::vector<Running>& states, const Names& tensors,
              const std::vector<at::ScalarType>& types,
              const std::function<Names(const Names& states, const Names& elements)>& next) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  Names around;
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    if (d != axis) around.push_back(c.sizes(tensors[0], d, d + 1));
  }
  const std::string shape = around.empty() ? c.g.ints({})
                            : around.size() == 1
                                ? around[0]
                                : c.one("Concat", around, {{"axis", std::int64_t{0}}});
  convert::MadeNode scan;
  scan.op = "Scan";
  std::vector<convert::MadeValue> inputs;
  Names before, elements;
  for (const Running& each : states) {
    scan.inputs.push_back(
        c.one("ConstantOfShape", {shape},
              {{"value", at::full({1}, each.begin, at::TensorOptions(each.type))}}));
    before.push_back(c.g.fresh("before"));
    inputs.push_back(unshaped(before.back(), each.type));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    scan.inputs.push_back(tensors[i]);
    elements.push_back(c.g.fresh("element"));
    inputs.push_back(unshaped(elements.back(), types[i]));
  }
  c.g.open_body();
  const Names made = next(before, elements);
  Names outputs;
  outputs.reserve(2 * made.size());
  for (const std::string& each : made) outputs.push_back(c.g.own_node("Identity", each));
  for (const std::string& each : made) outputs.push_back(c.g.own_node("Identity", each));
  scan.attributes["body"] = c.g.close_body(outputs, std::move(inputs));
  scan.attributes["num_scan_inputs"] = count;
  scan.attributes["scan_input_axes"] = std::vector<std::int64_t>(tensors.size(), axis);
  scan.attributes["scan_output_axes"] = std::vector<std::int64_t>(states.size(), axis);
  Names all;
  for (std::size_t i = 0; i < 2 * states.size(); ++i) scan.outputs.push_back(c.g.fresh("Scan_out"));
  all.assign(scan.outputs.begin() + static_cast<std::ptrdiff_t>(states.size()), scan.outputs.end());
  c.g.add_node(std::move(scan));
  return all;
}

/// A number by itself, or no numbers.
bool has_no_steps(C c) {
  return c.rank() == 0 || c.fixed_size("self", c.dim()) == 0;
}

Names running_product(C c) {
  const at::ScalarType type = c.out_type();
  if (has_no_steps(c)) return {c.x("self", type)};
  return scanned(c, c.dim(), {{1, type}}, {c.x("self", type)}, {type},
                 [&](const Names& before, const Names& x) {
                   return Names{c.one("Mul", {before[0], x[0]})};
                 });
}

/// log(exp(before) + exp(x)), of which the larger one is taken out.
Names running_log_sum(C c) {
  const at::ScalarType type = c.out_type();
  if (has_no_steps(c)) return {c.x("self", type)};
  // The lowest number in place of minus infinity, whose difference to itself is none.
  const double lowest = type == at::kHalf ? -65504 : std::numeric_limits<float>::lowest();
  return scanned(
      c, c.dim(), {{lowest, type}}, {c.x("self", type)}, {type},
      [&](const Names& before, const Names& x) {
        const std::string larger = c.one("Max", {before[0], x[0]});
        const std::string apart = c.one("Abs", {c.one("Sub", {before[0], x[0]})});
        const std::string rest = c.one("Exp", {c.one("Neg", {apart})});
        return Names{c.one("Add", {larger, c.one("Log", {c.one("Add", {rest, c.constant(1)})})})};
      });
}

/// The largest or smallest so far, and its place; the last one of equal ones.
Names running_extreme(C c, std::string_view compare, bool largest) {
  const at::ScalarType type = c.type();
  if (has_no_steps(c))
    return {c.x(), c.one("ConstantOfShape", {c.one("Shape", {c.x()})},
                         {{"value", at::full({1}, 0, at::TensorOptions(at::kLong))}})};
  const std::int64_t axis = c.dim();
  const bool is_float = at::isFloatingType(type);
  const at::ScalarType wide = is_float ? type : at::kLong;
  const std::string x = c.x("self", wide);
  double begin =
      largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (!is_float) begin = largest ? -0x1p62 : 0x1p62;
  const std::string all = c.one(
      "Range", {c.g.integer(0), c.one("Squeeze", {c.sizes(x, axis, axis + 1)}), c.g.integer(1)});
  std::vector<std::int64_t> shape(static_cast<std::size_t>(c.rank()), 1);
  shape[static_cast<std::size_t>(axis)] = -1;
  const std::string places =
      c.one("Expand", {c.one("Reshape", {all, c.g.ints(shape)}), c.one("Shape", {x})});
  Names made = scanned(c, axis, {{begin, wide}, {0, at::kLong}}, {x, places}, {wide, at::kLong},
                       [&](const Names& before, const Names& now) {
                         const std::string is_next = c.one(compare, {now[0], before[0]});
                         return Names{c.one("Where", {is_next, now[0], before[0]}),
                                      c.one("Where", {is_next, now[1], before[1]})};
                       });
  return {c.g.cast(made[0], wide, type), made[1]};
}

/// Sorted along an axis, values and places.
Names ascending(C c, const std::string& x, std::int64_t axis) {
  return c.g.ops("TopK", {x, c.sizes(x, axis, axis + 1)},
                 {{"axis", axis}, {"largest", std::int64_t{0}}}, 2);
}

/// The lower one of the two in the middle, and its place.
Names median(C c) {
  const bool flat = !c.has("dim");
  if (c.rank() == 0) return {c.x(), c.g.integer(0)};
  if (flat && c.example().numel() == 0) return {c.g.tensor(c.result().toTensor())};
  const std::string x = flat ? c.one("Reshape", {c.x(), c.g.ints({-1})}) : c.x();
  const std::int64_t axis = flat ? 0 : c.dim();
  const Names sorted = ascending(c, x, axis);
  const std::string last = c.one("Sub", {c.sizes(x, axis, axis + 1), c.g.ints({1})});
  const std::string middle = c.one("Div", {last, c.g.ints({2})});
  const bool keep = !flat && c.has("keepdim") && c.b("keepdim");
  const auto at = [&](const std::string& all) {
    const std::string part = c.one("Gather", {all, middle}, {{"axis", axis}});
    return keep ? part : c.squeezed(part, {axis});
  };
  if (flat) return {at(sorted[0])};
  return {at(sorted[0]), at(sorted[1])};
}

/// Between the neighbours of the place (n - 1) q in the order.
Names quantile(C c) {
  const std::string way = c.has("interpolation") ? c.s("interpolation") : "linear";
  if (way != "linear") c.refuse("only linear interpolation can be said in ONNX");
  const at::ScalarType type = c.out_type();
  const bool flat = !c.has("dim");
  const std::string x = flat ? c.one("Reshape", {c.x(), c.g.ints({-1})}) : c.x();
  const std::int64_t rank = flat ? 1 : c.rank(), axis = flat ? 0 : c.dim();
  const bool one = example_of(c.arg("q"), 0).isScalar() || c.rank("q") == 0;
  const std::string q = one ? c.one("Reshape", {c.x("q", type), c.g.ints({1})}) : c.x("q", type);
  const std::string sorted = ascending(c, x, axis)[0];
  const std::string last =
      c.one("Sub", {c.g.cast(c.sizes(x, axis, axis + 1), at::kLong, type), c.g.number(1, type)});
  const std::string place = c.one("Mul", {q, last}), below = c.one("Floor", {place});
  const auto at = [&](const std::string& where) {
    return c.one("Gather", {sorted, c.g.cast(where, type, at::kLong)}, {{"axis", axis}});
  };
  std::vector<std::int64_t> shape(static_cast<std::size_t>(rank), 1);
  shape[static_cast<std::size_t>(axis)] = -1;
  const std::string low = at(below), high = at(c.one("Ceil", {place}));
  const std::string part = c.one("Reshape", {c.one("Sub", {place, below}), c.g.ints(shape)});
  std::string made = c.one("Add", {low, c.one("Mul", {c.one("Sub", {high, low}), part})});
  const bool keep = c.has("keepdim") && c.b("keepdim");
  if (one) {
    if (!keep) return {c.squeezed(made, {axis})};
    if (!flat) return {made};
    return {c.one("Reshape", {made, c.g.ints(std::vector<std::int64_t>(
                                        static_cast<std::size_t>(c.rank()), 1))})};
  }
  // Many quantiles stand in front.
  std::vector<std::int64_t> order = {axis};
  for (std::int64_t d = 0; d < rank; ++d) {
    if (d != axis) order.push_back(d);
  }
  if (axis != 0) made = c.one("Transpose", {made}, {{"perm", order}});
  if (!keep) return {made};
  if (!flat) return {c.unsqueezed(made, {axis + 1})};
  std::vector<std::int64_t> ones(static_cast<std::size_t>(c.rank() + 1), 1);
  ones[0] = -1;
  return {c.one("Reshape", {made, c.g.ints(ones)})};
}

Names both_extremes(C c) {
  const bool keep = c.has("keepdim") && c.b("keepdim");
  if (c.rank() == 0) return {c.x(), c.x()};
  const std::vector<std::int64_t> axes =
      c.has("dim") ? std::vector{c.dim()} : std::vector<std::int64_t>{};
  return {c.reduced("ReduceMin", c.x(), axes, keep, c.rank()),
          c.reduced("ReduceMax", c.x(), axes, keep, c.rank())};
}

constexpr Row kRunning[] = {
    {"cumprod", 13, running_product},
    {"logcumsumexp", 13, running_log_sum},
    {"cummax", 13, [](C c) { return running_extreme(c, "GreaterOrEqual", true); }},
    {"cummin", 13, [](C c) { return running_extreme(c, "LessOrEqual", false); }},
    {"median", 13, median},
    {"quantile", 13, quantile},
    {"aminmax", 13, both_extremes},
    {"msort", 13, [](C c) { return Names{c.rank() == 0 ? c.x() : ascending(c, c.x(), 0)[0]}; }},
};

}  // namespace

std::span<const Row> running_rows() {
  return kRunning;
}

}  // namespace mezzo::deploy::detail
