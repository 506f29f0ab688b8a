// Reductions, softmax, sorting.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

std::vector<std::int64_t> axes_of(C c) {
  if (!c.has("dim")) return {};
  return c.is("dim");
}

bool keeps(C c) {
  return c.takes("keepdim") && c.b("keepdim");
}

std::string reduce(C c, std::string_view op, const std::string& tensor) {
  if (c.rank() == 0) return tensor;
  return c.reduced(op, tensor, axes_of(c), keeps(c), c.rank());
}

/// The sum of a tensor, or of the numbers in a list.
Names sum(C c) {
  const OnnxValue& given = c.arg("self");
  if (!example_of(given, 0).isList()) return {reduce(c, "ReduceSum", c.x("self", c.out_type()))};
  std::string all;
  for (const OnnxValue& each : given.elements()) {
    const std::string number = c.as(each, c.out_type());
    all = all.empty() ? number : c.one("Add", {all, number});
  }
  return {all};
}

/// Is nothing reduced, in all runs? Engines differ in what a mean of that is.
bool reduces_nothing(C c) {
  const std::vector<std::int64_t> axes = axes_of(c);
  for (std::int64_t d = 0; d < c.rank(); ++d) {
    const bool is_reduced = axes.empty() || std::ranges::any_of(axes, [&](std::int64_t axis) {
                              return (axis < 0 ? axis + c.rank() : axis) == d;
                            });
    if (is_reduced && c.fixed_size("self", d) == 0) return true;
  }
  return false;
}

Names mean(C c) {
  const std::string x = c.x("self", c.out_type());
  if (!reduces_nothing(c)) return {reduce(c, "ReduceMean", x)};
  return {c.one("Div", {reduce(c, "ReduceSum", x), c.constant(0)})};
}

Names reduction(C c, std::string_view op) {
  return {reduce(c, op, c.x("self", c.out_type()))};
}

/// By a count, which is zero also of nothing.
std::string any_of(C c, const std::string& truths) {
  return c.g.cast(reduce(c, "ReduceSum", c.g.cast(truths, at::kBool, at::kLong)), at::kLong,
                  at::kBool);
}

Names any(C c) {
  return {c.g.cast(any_of(c, c.x("self", at::kBool)), at::kBool, c.out_type())};
}

Names all(C c) {
  const std::string one_fails = any_of(c, c.one("Not", {c.x("self", at::kBool)}));
  return {c.g.cast(c.one("Not", {one_fails}), at::kBool, c.out_type())};
}

/// max and min: of everything, along an axis with places, or of two tensors.
Names extreme(C c, bool largest) {
  if (c.takes("other"))
    return {
        c.one(largest ? "Max" : "Min", {c.x("self", c.out_type()), c.x("other", c.out_type())})};
  const std::string_view op = largest ? "ReduceMax" : "ReduceMin";
  if (!c.has("dim"))
    return {c.rank() == 0 ? c.x("self") : c.reduced(op, c.x("self"), {}, false, c.rank())};
  if (c.rank() == 0) return {c.x("self"), c.g.integer(0)};
  const bool keep = keeps(c);
  return {c.reduced(op, c.x("self"), {c.dim()}, keep, c.rank()),
          c.one(largest ? "ArgMax" : "ArgMin", {c.x("self")},
                {{"axis", c.dim()}, {"keepdims", std::int64_t{keep}}})};
}

Names arg_extreme(C c, std::string_view op) {
  if (c.has("dim")) {
    return {c.rank() == 0 ? c.g.integer(0)
                          : c.one(op, {c.x("self")},
                                  {{"axis", c.dim()}, {"keepdims", std::int64_t{keeps(c)}}})};
  }
  const std::string flat = c.one("Reshape", {c.x("self"), c.g.ints({-1})});
  return {c.one(op, {flat}, {{"axis", std::int64_t{0}}, {"keepdims", std::int64_t{0}}})};
}

/// The number of elements that a variance is taken of, less the correction, but not below zero; as
/// a constant or from the shape.
std::string count_of(C c, const std::vector<std::int64_t>& axes, double correction) {
  double fixed = 1;
  bool is_fixed = true;
  std::vector<std::int64_t> all = axes;
  if (all.empty()) {
    all.resize(static_cast<std::size_t>(c.rank()));
    std::iota(all.begin(), all.end(), 0);
  }
  std::string product;
  for (const std::int64_t axis : all) {
    const std::int64_t place = axis < 0 ? axis + c.rank() : axis;
    is_fixed = is_fixed && c.fixed_size("self", place) >= 0;
    fixed *= static_cast<double>(c.fixed_size("self", place));
  }
  if (is_fixed) return c.constant(std::max(fixed - correction, 0.0));
  for (const std::int64_t axis : all) {
    const std::int64_t place = axis < 0 ? axis + c.rank() : axis;
    const std::string size = c.sizes(c.x("self"), place, place + 1);
    product = product.empty() ? size : c.one("Mul", {product, size});
  }
  const std::string less = c.one(
      "Sub",
      {c.g.cast(c.one("Squeeze", {product}), at::kLong, c.out_type()), c.constant(correction)});
  return correction > 0 ? c.one("Max", {less, c.constant(0)}) : less;
}

Names variance(C c, bool root, bool with_mean) {
  double correction = 1;
  if (c.has("correction")) correction = c.d("correction");
  if (c.has("unbiased")) correction = c.b("unbiased") ? 1 : 0;
  const std::vector<std::int64_t> axes = axes_of(c);
  const std::string x = c.x("self");
  const std::string mean = c.reduced("ReduceMean", x, axes, true, c.rank());
  const std::string off = c.one("Sub", {x, mean});
  const std::string sum =
      c.reduced("ReduceSum", c.one("Mul", {off, off}), axes, keeps(c), c.rank());
  std::string result = c.one("Div", {sum, count_of(c, axes, correction)});
  if (root) result = c.one("Sqrt", {result});
  if (!with_mean) return {result};
  return {result, c.reduced("ReduceMean", x, axes, keeps(c), c.rank())};
}

std::string norm(C c, const std::string& x, double p, const std::vector<std::int64_t>& axes,
                 bool keep, std::int64_t rank) {
  if (p == 2) return c.reduced("ReduceL2", x, axes, keep, rank);
  if (p == 1) return c.reduced("ReduceL1", x, axes, keep, rank);
  const std::string size = c.one("Abs", {x});
  if (std::isinf(p)) return c.reduced(p > 0 ? "ReduceMax" : "ReduceMin", size, axes, keep, rank);
  const std::string sum =
      c.reduced("ReduceSum", c.one("Pow", {size, c.constant(p)}), axes, keep, rank);
  return c.one("Pow", {sum, c.constant(1 / p)});
}

Names norm(C c) {
  const double p = c.has("p") ? c.d("p") : c.has("ord") ? c.d("ord") : 2;
  return {norm(c, c.x("self", c.out_type()), p, axes_of(c), keeps(c), c.rank())};
}

/// The largest or smallest sum of sizes along one of two axes.
Names matrix_norm(C c, double order, std::vector<std::int64_t> axes) {
  if (std::abs(order) == 2) c.refuse("it needs singular values, which ONNX has no operator for");
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + c.rank() : axis;
  const std::int64_t along = std::isinf(order) ? axes[1] : axes[0];
  const std::string x = c.x("self", c.out_type());
  const std::string sums = c.reduced("ReduceL1", x, {along}, true, c.rank());
  const std::string made =
      c.reduced(order > 0 ? "ReduceMax" : "ReduceMin", sums, axes, true, c.rank());
  return {keeps(c) ? made : c.squeezed(made, axes)};
}

/// The norm of vectors or of matrices, as the number of axes says.
Names linalg_norm(C c) {
  const std::string x = c.x("self", c.out_type());
  const bool is_text = c.has("ord") && example_of(c.arg("ord"), 0).isString();
  if (is_text && c.s("ord") != "fro")
    c.refuse("it needs singular values, which ONNX has no operator for");
  std::vector<std::int64_t> axes = axes_of(c);
  if (is_text || !c.has("ord")) return {norm(c, x, 2, axes, keeps(c), c.rank())};
  if (axes.empty()) {
    axes.resize(static_cast<std::size_t>(c.rank()));
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (axes.size() == 2) return matrix_norm(c, c.d("ord"), axes);
  return {norm(c, x, c.d("ord"), axes, keeps(c), c.rank())};
}

Names pairwise_distance(C c) {
  const std::int64_t rank = std::max(c.rank("x1"), c.rank("x2"));
  const std::string off = c.one(
      "Add",
      {c.one("Sub", {c.x("x1", c.out_type()), c.x("x2", c.out_type())}), c.constant(c.d("eps"))});
  return {norm(c, off, c.d("p"), {rank - 1}, keeps(c), rank)};
}

/// The mean of what is a number.
Names mean_of_numbers(C c) {
  const std::string x = c.x("self", c.out_type());
  const std::string is_none = c.one("IsNaN", {x});
  const std::string sum = reduce(c, "ReduceSum", c.one("Where", {is_none, c.constant(0), x}));
  const std::string count =
      reduce(c, "ReduceSum", c.g.cast(c.one("Not", {is_none}), at::kBool, c.out_type()));
  return {c.one("Div", {sum, count})};
}

Names softmax(C c, std::string_view op) {
  if (c.rank() == 0) return {op == "Softmax" ? c.constant(1) : c.constant(0)};
  return {c.one(op, {c.x("self", c.out_type())}, {{"axis", c.dim()}})};
}

Names cumulative(C c) {
  return {c.rank() == 0 ? c.x("self", c.out_type())
                        : c.one("CumSum", {c.x("self", c.out_type()), c.g.integer(c.dim())})};
}

Names top(C c, const std::string& count, std::int64_t axis, bool largest) {
  return c.g.ops("TopK", {c.x("self"), count},
                 {{"axis", axis}, {"largest", std::int64_t{largest}}, {"sorted", std::int64_t{1}}},
                 2);
}

Names topk(C c) {
  return top(c, c.list("k"), c.dim(), c.b("largest"));
}

Names sort(C c) {
  const std::int64_t axis = c.dim();
  if (c.rank() == 0) return {c.x("self"), c.g.integer(0)};
  return top(c, c.sizes(c.x("self"), axis, axis + 1), axis,
             c.has("descending") && c.b("descending"));
}

Names kth(C c) {
  const Names sorted = top(c, c.list("k"), c.dim(), false);
  const std::int64_t axis = c.dim();
  const auto last = [&](const std::string& all) {
    const std::string part = c.sliced(all, axis, -1, std::numeric_limits<std::int64_t>::max());
    return keeps(c) ? part : c.squeezed(part, {axis});
  };
  return {last(sorted[0]), last(sorted[1])};
}

constexpr Row kReductions[] = {
    {"sum", 13, sum},
    {"mean", 13, mean},
    {"prod", 13, [](C c) { return reduction(c, "ReduceProd"); }},
    {"logsumexp", 13, [](C c) { return reduction(c, "ReduceLogSumExp"); }},
    {"amax", 13, [](C c) { return reduction(c, "ReduceMax"); }},
    {"amin", 13, [](C c) { return reduction(c, "ReduceMin"); }},
    {"all", 13, all},
    {"any", 13, any},
    {"max", 13, [](C c) { return extreme(c, true); }},
    {"min", 13, [](C c) { return extreme(c, false); }},
    {"argmax", 13, [](C c) { return arg_extreme(c, "ArgMax"); }},
    {"argmin", 13, [](C c) { return arg_extreme(c, "ArgMin"); }},
    {"var", 13, [](C c) { return variance(c, false, false); }},
    {"std", 13, [](C c) { return variance(c, true, false); }},
    {"var_mean", 13, [](C c) { return variance(c, false, true); }},
    {"std_mean", 13, [](C c) { return variance(c, true, true); }},
    {"norm linalg_vector_norm frobenius_norm", 13, [](C c) { return norm(c); }},
    {"linalg_norm linalg_matrix_norm", 13, linalg_norm},
    {"pairwise_distance", 13, pairwise_distance},
    {"nanmean", 13, mean_of_numbers},
    {"softmax _softmax special_softmax", 13, [](C c) { return softmax(c, "Softmax"); }},
    {"log_softmax _log_softmax", 13, [](C c) { return softmax(c, "LogSoftmax"); }},
    {"special_log_softmax", 13, [](C c) { return softmax(c, "LogSoftmax"); }},
    {"_safe_softmax", 13,
     [](C c) {
       const std::string y = softmax(c, "Softmax")[0];
       return Names{c.one("Where", {c.one("IsNaN", {y}), c.constant(0), y})};
     }},
    {"softmin", 13,
     [](C c) {
       return Names{c.one("Softmax", {c.one("Neg", {c.x("self")})}, {{"axis", c.dim()}})};
     }},
    {"cumsum", 13, cumulative},
    {"topk", 13, topk},
    {"sort", 13, sort},
    {"kthvalue", 13, kth},
    {"argsort", 13, [](C c) { return Names{sort(c)[1]}; }},
    {"count_nonzero", 13,
     [](C c) {
       return Names{c.reduced("ReduceSum", c.g.cast(c.x("self", at::kBool), at::kBool, at::kLong),
                              axes_of(c), false, c.rank())};
     }},
};

}  // namespace

std::span<const Row> reduction_rows() {
  return kReductions;
}

}  // namespace mezzo::deploy::detail
