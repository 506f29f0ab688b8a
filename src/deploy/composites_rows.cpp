// Operators that are compositions of others: differences of neighbours, logarithms of sums, places
// among bounds, columns and stacks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;
constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();

std::string at_least(C c, const OnnxValue& value, std::int64_t dims) {
  const at::Tensor example = example_of(value, 0).toTensor();
  std::string x = c.as(value, c.out_type());
  const std::int64_t rank = example.dim();
  if (rank >= dims) return x;
  if (rank == 0)
    return c.one("Reshape",
                 {x, c.g.ints(std::vector<std::int64_t>(static_cast<std::size_t>(dims), 1))});
  if (dims == 2) return c.unsqueezed(x, {0});
  return rank == 1 ? c.unsqueezed(x, {0, 2}) : c.unsqueezed(x, {2});
}

Names at_least(C c, std::int64_t dims) {
  Names made;
  if (!c.takes("tensors")) return {at_least(c, c.arg("self"), dims)};
  for (const OnnxValue& tensor : c.arg("tensors").elements())
    made.push_back(at_least(c, tensor, dims));
  return made;
}

Names side_by_side(C c, std::int64_t dims, std::int64_t axis) {
  Names parts;
  for (const OnnxValue& tensor : c.arg("tensors").elements())
    parts.push_back(at_least(c, tensor, dims));
  if (dims == 1) axis = c.out_rank() == 1 ? 0 : 1;
  return {parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", axis}})};
}

Names columns(C c) {
  Names parts;
  for (const OnnxValue& tensor : c.arg("tensors").elements()) {
    const std::int64_t rank = example_of(tensor, 0).toTensor().dim();
    const std::string x = c.as(tensor, c.out_type());
    parts.push_back(rank <= 1 ? c.one("Reshape", {x, c.g.ints({-1, 1})}) : x);
  }
  return {parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", std::int64_t{1}}})};
}

/// Parts along an axis as the examples have them; all runs must agree.
Names fixed_parts(C c, std::int64_t axis) {
  Names parts;
  std::int64_t begin = 0;
  const auto all = c.result().toTensorVector();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 1; k < c.g.variants(); ++k) {
      if (c.result(0, k).toTensorVector().at(i).size(axis) != all[i].size(axis))
        c.refuse("the lengths of its parts follow from the model's inputs");
    }
    parts.push_back(c.sliced(c.x(), axis, begin, begin + all[i].size(axis)));
    begin += all[i].size(axis);
  }
  return parts;
}

std::string not_a_number(C c, const std::string& x) {
  return c.one("IsNaN", {x});
}

std::string or_zero(C c, const std::string& where_zero, const std::string& otherwise) {
  return c.one("Where", {where_zero, c.constant(0), otherwise});
}

/// log(b^x + b^y) without leaving the range.
Names log_of_sum(C c, double base) {
  const std::string a = c.x("self", c.out_type()), b = c.x("other", c.out_type());
  std::string gap = c.one("Neg", {c.one("Abs", {c.one("Sub", {a, b})})});
  gap = or_zero(c, not_a_number(c, gap), gap);  // two infinities of one sign
  const double scale = std::log(base);
  std::string tail = c.one(
      "Log",
      {c.one("Add", {c.one("Exp", {scale == 1 ? gap : c.one("Mul", {gap, c.constant(scale)})}),
                     c.constant(1)})});
  if (scale != 1) tail = c.one("Div", {tail, c.constant(scale)});
  return {c.one("Add", {c.one("Max", {a, b}), tail})};
}

Names times_log(C c, bool one_plus) {
  const std::string x = c.x("self", c.out_type()), y = c.x("other", c.out_type());
  const std::string inner = one_plus ? c.one("Add", {y, c.constant(1)}) : y;
  const std::string nothing =
      c.one("And", {c.one("Equal", {x, c.constant(0)}), c.one("Not", {not_a_number(c, y)})});
  return {or_zero(c, nothing, c.one("Mul", {x, c.one("Log", {inner})}))};
}

Names with_sign_of(C c) {
  const std::string size = c.one("Abs", {c.x("self", c.out_type())});
  const std::string negative = c.one("Less", {c.x("other", c.out_type()), c.constant(0)});
  return {c.one("Where", {negative, c.one("Neg", {size}), size})};
}

Names step(C c) {
  const std::string x = c.x("self", c.out_type()), zero = c.constant(0);
  const std::string above = c.one("Where", {c.one("Greater", {x, zero}), c.constant(1), zero});
  return {c.one("Where", {c.one("Equal", {x, zero}), c.x("values", c.out_type()), above})};
}

Names is_in(C c) {
  const std::string_view all = c.takes("elements") ? "elements" : "element",
                         some = c.takes("test_elements") ? "test_elements" : "test_element";
  const at::ScalarType type = c10::promoteTypes(c.type(all), c.type(some));
  const bool is_tensor = example_of(c.arg(all), 0).isTensor();
  std::string x = c.x(all, type);
  if (!is_tensor && !c.arg(all).is_constant()) x = c.one("Squeeze", {x});
  const std::int64_t rank = is_tensor ? c.rank(all) : 0;
  const std::string others = c.one("Reshape", {c.x(some, type), c.g.ints({-1})});
  const std::string same = c.one("Equal", {c.unsqueezed(x, {rank}), others});
  const std::string count =
      c.reduced("ReduceSum", c.g.cast(same, at::kBool, at::kLong), {rank}, false, rank + 1);
  const std::string found = c.one("Greater", {count, c.g.integer(0)});
  return {c.b("invert") ? c.one("Not", {found}) : found};
}

/// NaN counts as nothing.
Names sum_of_numbers(C c) {
  const std::string x = c.x("self", c.out_type());
  const std::string numbers = c.is_float() ? or_zero(c, not_a_number(c, x), x) : x;
  if (c.rank() == 0) return {numbers};
  const std::vector<std::int64_t> axes = c.has("dim") ? c.is("dim") : std::vector<std::int64_t>();
  return {c.reduced("ReduceSum", numbers, axes, c.b("keepdim"), c.rank())};
}

Names neighbours_difference(C c) {
  const std::int64_t axis = c.dim();
  Names parts;
  if (c.has("prepend")) parts.push_back(c.x("prepend", c.type()));
  parts.push_back(c.x());
  if (c.has("append")) parts.push_back(c.x("append", c.type()));
  std::string x = parts.size() == 1 ? parts[0] : c.one("Concat", parts, {{"axis", axis}});
  for (std::int64_t i = 0; i < c.i("n"); ++i) {
    const std::string after = c.sliced(x, axis, 1, kLast), before = c.sliced(x, axis, 0, -1);
    if (c.type() == at::kBool) {
      x = c.one("Xor", {after, before});
    } else {
      x = c.one("Sub", {after, before});
    }
  }
  return {x};
}

Names trapezoids(C c) {
  const std::string y = c.x("y", c.out_type());
  const std::int64_t rank = c.rank("y"), axis = c.dim("dim", "y");
  std::string sides = c.one("Add", {c.sliced(y, axis, 1, kLast), c.sliced(y, axis, 0, -1)});
  if (c.takes("x")) {
    std::string x = c.x("x", c.out_type());
    const std::int64_t own = c.rank("x") == 1 ? 0 : axis;
    x = c.one("Sub", {c.sliced(x, own, 1, kLast), c.sliced(x, own, 0, -1)});
    if (c.rank("x") == 1) {
      std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank - axis), 1);
      sizes[0] = -1;
      x = c.one("Reshape", {x, c.g.ints(sizes)});
    }
    sides = c.one("Mul", {sides, x});
  } else if (c.d("dx") != 1) {
    sides = c.one("Mul", {sides, c.constant(c.d("dx"))});
  }
  return {c.one("Mul", {c.reduced("ReduceSum", sides, {axis}, false, rank), c.constant(0.5)})};
}

Names distance(C c) {
  const double p = c.d("p");
  const std::int64_t rank = std::max(c.rank("self"), c.rank("other"));
  const std::string off = c.one("Sub", {c.x("self", c.out_type()), c.x("other", c.out_type())});
  if (rank == 0) return {c.one("Abs", {off})};
  if (p == 2) return {c.reduced("ReduceL2", off, {}, false, rank)};
  const std::string size = c.one("Abs", {off});
  if (std::isinf(p)) return {c.reduced(p > 0 ? "ReduceMax" : "ReduceMin", size, {}, false, rank)};
  if (p == 0) {
    const std::string apart =
        c.g.cast(c.one("Greater", {size, c.constant(0)}), at::kBool, c.out_type());
    return {c.reduced("ReduceSum", apart, {}, false, rank)};
  }
  const std::string sum =
      c.reduced("ReduceSum", c.one("Pow", {size, c.constant(p)}), {}, false, rank);
  return {c.one("Pow", {sum, c.constant(1 / p)})};
}

/// How many of the sorted bounds lie before each value.
Names place_among(C c, std::string_view bounds, bool right) {
  const OnnxValue& value = c.arg("self");
  const bool is_tensor = example_of(value, 0).isTensor();
  const at::ScalarType type =
      is_tensor ? at::result_type(c.example("self"), c.example(bounds)) : c.type(bounds);
  const std::int64_t rank = is_tensor ? c.rank() : 0, own = c.rank(bounds);
  const std::string x = c.unsqueezed(c.x("self", type), {rank});
  std::string all = c.x(bounds, type);
  if (own > 1) all = c.unsqueezed(all, {own - 1});
  const std::string before = c.one(right ? "LessOrEqual" : "Less", {all, x});
  const std::int64_t joint = std::max(rank + 1, own > 1 ? own + 1 : own);
  return {
      c.reduced("ReduceSum", c.g.cast(before, at::kBool, c.out_type()), {joint - 1}, false, joint)};
}

Names search_sorted(C c) {
  if (c.has("sorter")) c.refuse("a sorter cannot be said in ONNX; sort the sequence first");
  const bool right = c.b("right") || (c.has("side") && c.s("side") == "right");
  return place_among(c, "sorted_sequence", right);
}

Names allclose_or_equal(C c, bool equal) {
  const std::string a = c.x("self", at::kFloat), b = c.x("other", at::kFloat);
  const std::int64_t rank = std::max(c.rank("self"), c.rank("other"));
  if (equal && c.rank("self") != c.rank("other")) c.refuse("its operands have different ranks");
  std::string same;
  if (equal) {
    same = c.one("Equal", {a, b});
  } else {
    const std::string bound =
        c.one("Add", {c.g.number(c.d("atol"), at::kFloat),
                      c.one("Mul", {c.g.number(c.d("rtol"), at::kFloat), c.one("Abs", {b})})});
    same = c.one("LessOrEqual", {c.one("Abs", {c.one("Sub", {a, b})}), bound});
  }
  std::string all = c.g.cast(same, at::kBool, at::kInt);
  if (rank > 0) all = c.reduced("ReduceMin", all, {}, false, rank);
  return {c.one("Reshape", {c.g.cast(all, at::kInt, at::kBool), c.g.ints({1})})};
}

Names spaced(C c, double base) {
  const at::ScalarType type = at::kFloat;
  const auto number = [&](std::string_view name) {
    const std::string x = c.x(name, type);
    return c.arg(name).is_constant() ? x : c.one("Squeeze", {x});
  };
  const std::string steps = c.one("Squeeze", {c.list("steps")});
  const std::string count =
      c.g.cast(c.one("Range", {c.g.integer(0), steps, c.g.integer(1)}), at::kLong, type);
  const std::string gaps = c.g.cast(
      c.one("Max", {c.one("Sub", {steps, c.g.integer(1)}), c.g.integer(1)}), at::kLong, type);
  const std::string each = c.one("Div", {c.one("Sub", {number("end"), number("start")}), gaps});
  std::string x = c.one("Add", {number("start"), c.one("Mul", {count, each})});
  if (base != 1) x = c.one("Pow", {c.g.number(base, type), x});
  return {c.g.cast(x, type, c.out_type())};
}

constexpr Row kComposites[] = {
    {"atleast_1d", 13, [](C c) { return at_least(c, 1); }},
    {"atleast_2d", 13, [](C c) { return at_least(c, 2); }},
    {"atleast_3d", 13, [](C c) { return at_least(c, 3); }},
    {"hstack", 13, [](C c) { return side_by_side(c, 1, 0); }},
    {"vstack", 13, [](C c) { return side_by_side(c, 2, 0); }},
    {"dstack", 13, [](C c) { return side_by_side(c, 3, 2); }},
    {"column_stack", 13, columns},
    {"hsplit", 13, [](C c) { return fixed_parts(c, c.rank() == 1 ? 0 : 1); }},
    {"vsplit", 13, [](C c) { return fixed_parts(c, 0); }},
    {"dsplit", 13, [](C c) { return fixed_parts(c, 2); }},
    {"logaddexp", 13, [](C c) { return log_of_sum(c, std::numbers::e); }},
    {"logaddexp2", 13, [](C c) { return log_of_sum(c, 2); }},
    {"xlogy special_xlogy", 13, [](C c) { return times_log(c, false); }},
    {"special_xlog1py", 13, [](C c) { return times_log(c, true); }},
    {"copysign", 13, with_sign_of},
    {"heaviside", 13, step},
    {"ldexp", 13,
     [](C c) {
       return Names{c.one("Mul", {c.x("self", c.out_type()),
                                  c.one("Pow", {c.constant(2), c.x("other", c.out_type())})})};
     }},
    {"isposinf", 13,
     [](C c) {
       return Names{c.one("IsInf", {c.x()}, {{"detect_negative", std::int64_t{0}}})};
     }},
    {"isneginf", 13,
     [](C c) {
       return Names{c.one("IsInf", {c.x()}, {{"detect_positive", std::int64_t{0}}})};
     }},
    {"isin", 13, is_in},
    {"nansum", 13, sum_of_numbers},
    {"diff", 13, neighbours_difference},
    {"trapezoid trapz", 13, trapezoids},
    {"dist", 13, distance},
    {"bucketize", 13, [](C c) { return place_among(c, "boundaries", c.b("right")); }},
    {"searchsorted", 13, search_sorted},
    {"equal", 13, [](C c) { return allclose_or_equal(c, true); }},
    {"allclose", 13, [](C c) { return allclose_or_equal(c, false); }},
    {"linspace", 13, [](C c) { return spaced(c, 1); }},
    {"logspace", 13, [](C c) { return spaced(c, c.d("base")); }},
};

}  // namespace

std::span<const Row> composite_rows() {
  return kComposites;
}

}  // namespace mezzo::deploy::detail
