// Products of tensors in every arrangement, powers, diagonals and turns of matrices.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

std::string letters(std::int64_t from, std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) text += static_cast<char>('a' + from + i);
  return text;
}

std::string einsum_of(C c, const Names& in, const std::string& equation) {
  return c.one("Einsum", in, {{"equation", equation}});
}

Names inner_product(C c) {
  const std::int64_t a = c.rank("self"), b = c.rank("other");
  const Names in = {c.x("self", c.out_type()), c.x("other", c.out_type())};
  if (a == 0 || b == 0) return {c.one("Mul", in)};
  const std::string left = letters(0, a - 1), right = letters(a - 1, b - 1);
  return {einsum_of(c, in, left + "z," + right + "z->" + left + right)};
}

Names contraction(C c) {
  const std::int64_t a = c.rank("self"), b = c.rank("other");
  const std::vector<std::int64_t> mine = c.is("dims_self"), others = c.is("dims_other");
  std::string left = letters(0, a), right = letters(a, b), result;
  std::set<std::int64_t> gone;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::int64_t x = mine[i] < 0 ? mine[i] + a : mine[i],
                       y = others[i] < 0 ? others[i] + b : others[i];
    right[static_cast<std::size_t>(y)] = left[static_cast<std::size_t>(x)];
    gone.insert(left[static_cast<std::size_t>(x)]);
  }
  for (const char each : left + right) {
    if (!gone.contains(each)) result += each;
  }
  return {einsum_of(c, {c.x("self", c.out_type()), c.x("other", c.out_type())},
                    left + "," + right + "->" + result)};
}

Names chain(C c, std::string_view name) {
  std::string product;
  for (const OnnxValue& tensor : c.arg(name).elements()) {
    const std::string x = c.as(tensor, c.out_type());
    product = product.empty() ? x : c.one("MatMul", {product, x});
  }
  return {product};
}

Names matrix_power(C c) {
  std::int64_t n = c.i("n");
  if (n < 1) c.refuse("only powers from 1 on can be said in ONNX");
  std::string square = c.x(), product;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) product = product.empty() ? square : c.one("MatMul", {product, square});
    if (n > 1) square = c.one("MatMul", {square, square});
  }
  return {product};
}

Names cross_product(C c) {
  const std::int64_t rank = std::max(c.rank("self"), c.rank("other"));
  std::int64_t axis = -1;
  if (c.has("dim")) {
    axis = c.i("dim") < 0 ? c.i("dim") + rank : c.i("dim");
  } else {
    for (std::int64_t d = rank - 1; d >= 0; --d) axis = c.fixed_size("self", d) == 3 ? d : axis;
  }
  const auto turned = [&](std::string_view name, const std::vector<std::int64_t>& order) {
    return c.one("Gather", {c.x(name, c.out_type()), c.g.ints(order)},
                 {{"axis", axis - (rank - c.rank(name))}});
  };
  return {c.one("Sub", {c.one("Mul", {turned("self", {1, 2, 0}), turned("other", {2, 0, 1})}),
                        c.one("Mul", {turned("self", {2, 0, 1}), turned("other", {1, 2, 0})})})};
}

Names outer_sum(C c) {
  const std::string product = c.one("Mul", {c.unsqueezed(c.x("vec1", c.out_type()), {1}),
                                            c.unsqueezed(c.x("vec2", c.out_type()), {0})});
  return {c.one("Add", {c.one("Mul", {c.x("self", c.out_type()), c.constant(c.d("beta"))}),
                        c.one("Mul", {product, c.constant(c.d("alpha"))})})};
}

/// [rows, columns]: true where column - row is the offset.
std::string diagonal_mask(C c, const std::string& rows, const std::string& width,
                          std::int64_t offset) {
  const auto count = [&](const std::string& size) {
    return c.one("Range", {c.g.integer(0), c.one("Squeeze", {size}), c.g.integer(1)});
  };
  const std::string row = c.one("Add", {count(rows), c.g.integer(offset)});
  return c.one("Equal", {c.unsqueezed(row, {1}), c.unsqueezed(count(width), {0})});
}

/// Vectors along the last axis on diagonals of matrices.
Names on_diagonal(C c, const std::string& x, std::int64_t rank, std::int64_t offset) {
  const std::string length = c.sizes(x, rank - 1, rank);
  const std::string size = c.one("Add", {length, c.g.ints({std::abs(offset)})});
  // Above the main diagonal a value stands in the column behind its place, below it in the row.
  std::vector<std::int64_t> pads(static_cast<std::size_t>(2 * rank), 0);
  pads[static_cast<std::size_t>(rank - 1)] = std::abs(offset);
  const std::string values = offset == 0 ? x : c.one("Pad", {x, c.g.ints(pads), c.constant(0)});
  const std::string lines = c.unsqueezed(values, {offset >= 0 ? rank - 1 : rank});
  return {c.one("Where", {diagonal_mask(c, size, size, offset), lines, c.constant(0)})};
}

Names trace_of(C c) {
  const std::string x = c.x("self", c.out_type());
  const std::string inside = diagonal_mask(c, c.sizes(x, 0, 1), c.sizes(x, 1, 2), 0);
  return {c.reduced("ReduceSum", c.one("Where", {inside, x, c.constant(0)}), {}, false, 2)};
}

Names quarter_turns(C c) {
  const std::vector<std::int64_t> dims = c.is("dims");
  const std::int64_t rank = c.rank(), a = dims[0] < 0 ? dims[0] + rank : dims[0],
                     b = dims[1] < 0 ? dims[1] + rank : dims[1], turns = ((c.i("k") % 4) + 4) % 4;
  const auto flipped = [&](const std::string& x, std::int64_t axis) {
    return c.one("Slice", {x, c.g.ints({-1}), c.g.ints({std::numeric_limits<std::int64_t>::min()}),
                           c.g.ints({axis}), c.g.ints({-1})});
  };
  if (turns == 0) return {c.x()};
  if (turns == 1) return {c.transposed(flipped(c.x(), b), rank, a, b)};
  if (turns == 2) return {flipped(flipped(c.x(), a), b)};
  return {flipped(c.transposed(c.x(), rank, a, b), b)};
}

constexpr Row kMatrices[] = {
    {"inner", 13, inner_product},
    {"tensordot", 13, contraction},
    {"linalg_vecdot", 13,
     [](C c) {
       const std::int64_t rank = std::max(c.rank("x"), c.rank("y")), given = c.i("dim");
       return Names{c.reduced("ReduceSum",
                              c.one("Mul", {c.x("x", c.out_type()), c.x("y", c.out_type())}),
                              {given < 0 ? given + rank : given}, false, rank)};
     }},
    {"linalg_matmul", 13,
     [](C c) {
       return Names{c.one("MatMul", {c.x("self", c.out_type()), c.x("other", c.out_type())})};
     }},
    {"chain_matmul", 13, [](C c) { return chain(c, "matrices"); }},
    {"linalg_multi_dot", 13, [](C c) { return chain(c, "tensors"); }},
    {"matrix_power linalg_matrix_power", 13, matrix_power},
    {"linalg_det", 13, [](C c) { return Names{c.one("Det", {c.x("A")})}; }},
    {"cross linalg_cross", 13, cross_product},
    {"addr", 13, outer_sum},
    {"diag_embed", 13,
     [](C c) {
       if (c.i("dim1") != -2 || c.i("dim2") != -1)
         c.refuse("only the last two dimensions can hold the diagonals");
       return on_diagonal(c, c.x(), c.rank(), c.i("offset"));
     }},
    {"diagflat", 13,
     [](C c) {
       return on_diagonal(c, c.one("Reshape", {c.x(), c.g.ints({-1})}), 1, c.i("offset"));
     }},
    {"trace", 13, trace_of},
    {"rot90", 13, quarter_turns},
};

}  // namespace

std::span<const Row> matrix_rows() {
  return kMatrices;
}

}  // namespace mezzo::deploy::detail
