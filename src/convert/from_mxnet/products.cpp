// Products of matrices.
#include <cmath>

#include "convert/from_mxnet/reshape.h"
#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

Operand flattened(Call& call, const Operand& x) {
  if (x.has_rank(2)) return x;
  Dims dims{kUnknownSize, kUnknownSize};
  if (x.dims && !x.dims->empty()) dims = {x.dims->front(), product(std::span(*x.dims).subspan(1))};
  return call.add("Flatten", {x}, {{"axis", std::int64_t{1}}}, {x.element, dims});
}

// Rows of a matrix in the last dimension become those of a MatMul's second operand.
Operand transposed_weight(Call& call, std::size_t i) {
  std::string name;
  const NDArrays* holder = call.parameter(i, &name);
  if (holder != nullptr && holder->shape(name).size() == 2)
    return call.writer.transposed(*holder, name);
  return call.transpose(call.input(i), {1, 0});
}

Operands fully_connected(Call& call) {
  const std::int64_t hidden = call.integer("num_hidden", kUnknownSize);
  const bool has_bias = !call.flag("no_bias");
  const Operand& data = call.input(0);
  if (call.flag("flatten", true) || data.has_rank(2)) {
    const Operand x = flattened(call, data);
    Operands inputs{x, call.input(1)};
    if (has_bias) inputs.push_back(call.input(2));
    return {call.add("Gemm", inputs, {{"transB", std::int64_t{1}}},
                     {x.element, Dims{x.dims->front(), hidden}})};
  }
  std::optional<Dims> dims = data.dims;
  if (dims) {
    call.dims(data, 1);
    dims->back() = hidden;
  }
  Operand result = call.add("MatMul", {data, transposed_weight(call, 1)}, {}, {data.element, dims});
  if (has_bias) result = call.broadcast("Add", result, call.input(2));
  result.dims = dims;
  return {result};
}

// The last two dimensions exchanged.
Operand turned(Call& call, const Operand& x) {
  Dims order;
  for (std::int64_t axis = 0; axis < call.rank(x); ++axis) order.push_back(axis);
  if (order.size() < 2) return x;
  std::swap(order[order.size() - 2], order.back());
  return call.transpose(x, order);
}

std::optional<Dims> product_dims(const Operand& a, const Operand& b) {
  if (!a.dims || !b.dims || a.dims->size() < 2 || b.dims->size() < 2) return std::nullopt;
  Dims rows(a.dims->begin(), a.dims->end() - 2), columns(b.dims->begin(), b.dims->end() - 2);
  std::optional<Dims> dims = broadcast_dims(rows, columns);
  dims->push_back(*(a.dims->end() - 2));
  dims->push_back(b.dims->back());
  return dims;
}

Operand multiplied(Call& call, bool turns_a, bool turns_b) {
  const Operand a = turns_a ? turned(call, call.input(0)) : call.input(0);
  const Operand b = turns_b ? turned(call, call.input(1)) : call.input(1);
  return call.add("MatMul", {a, b}, {}, {a.element, product_dims(a, b)});
}

Operands batch_dot(Call& call) {
  return {multiplied(call, call.flag("transpose_a"), call.flag("transpose_b"))};
}

Operands dot(Call& call) {
  const std::int64_t a = call.rank(call.input(0)), b = call.rank(call.input(1));
  if (b > 2 || (call.flag("transpose_a") && a > 2))
    call.refuse("operands of " + std::to_string(a) + " and " + std::to_string(b) +
                " dimensions; expected a second one of two at most");
  Operand result = multiplied(call, call.flag("transpose_a"), call.flag("transpose_b"));
  if (a == 1 && b == 1) result = call.reshape(result, {1}, Dims{1});
  if (a == 1 && b == 2) result.dims = Dims{call.dims(call.input(1)).back()};
  if (a > 1 && b == 1)
    result.dims = Dims(call.dims(call.input(0)).begin(), call.dims(call.input(0)).end() - 1);
  return {result};
}

Operands linalg_gemm2(Call& call) {
  if (call.integer("axis", -2) != -2) call.refuse("another axis than -2; expected -2");
  const Operand result = multiplied(call, call.flag("transpose_a"), call.flag("transpose_b"));
  const double alpha = call.number("alpha", 1);
  return {alpha == 1 ? result : call.broadcast("Mul", result, alpha)};
}

// Divided by the root of the last size.
Operand over_root_of_size(Call& call, const Operand& x) {
  const std::int64_t size = call.dims(x, 1).back();
  const std::int64_t last = call.rank(x) - 1;
  if (size > 0) return call.broadcast("Div", x, std::sqrt(static_cast<double>(size)));
  const Operand count = call.cast(call.size(x, last), x.element);
  return call.broadcast("Div", x, call.map("Sqrt", count));
}

Operands divided_by_root_of_size(Call& call) {
  return {over_root_of_size(call, call.input(0))};
}

// Attention over heads whose queries, keys and values stand side by side: (length, batch,
// heads * parts * size). One part of all heads becomes (batch * heads, length, size).
Operand part_of_heads(Call& call, const Operand& x, std::int64_t parts, std::int64_t part) {
  const std::int64_t heads = call.integer("heads", 0);
  const Dims& dims = call.dims(x);
  if (dims.size() != 3 || heads < 1 || (dims[2] > 0 && dims[2] % (heads * parts) != 0))
    call.refuse("its data has no " + std::to_string(parts) + " parts for each of " +
                std::to_string(heads) + " heads; expected (length, batch, heads * parts * size)");
  const std::int64_t size = dims[2] < 0 ? kUnknownSize : dims[2] / (heads * parts);
  Operand one =
      call.reshape(x, {0, 0, heads, parts, -1}, Dims{dims[0], dims[1], heads, parts, size});
  one = call.squeeze(call.slice(one, 3, part, part + 1), {3});
  return reshape_by_codes(call, call.transpose(one, {1, 2, 0, 3}), {-3, 0, 0}, false);
}

// Products of queries and keys, over the root of a head's size.
Operand scores(Call& call, const Operand& query, const Operand& key) {
  const Operand scaled = over_root_of_size(call, query);
  const Operand turned_key = call.transpose(key, {0, 2, 1});
  return call.add("MatMul", {scaled, turned_key}, {},
                  {query.element, product_dims(scaled, turned_key)});
}

// Values by their weights, and the heads side by side again.
Operand weighed(Call& call, const Operand& weights, const Operand& value) {
  const Operand sums =
      call.add("MatMul", {weights, value}, {}, {value.element, product_dims(weights, value)});
  const std::int64_t heads = call.integer("heads", 0);
  const Operand apart = reshape_by_codes(call, sums, {-4, -1, heads, 0, 0}, false);
  return reshape_by_codes(call, call.transpose(apart, {2, 0, 1, 3}), {0, 0, -3}, false);
}

Operands self_scores(Call& call) {
  const Operand& x = call.input(0);
  return {scores(call, part_of_heads(call, x, 3, 0), part_of_heads(call, x, 3, 1))};
}

Operands self_sums(Call& call) {
  return {weighed(call, call.input(1), part_of_heads(call, call.input(0), 3, 2))};
}

Operands cross_scores(Call& call) {
  const Operand query = part_of_heads(call, call.input(0), 1, 0);
  return {scores(call, query, part_of_heads(call, call.input(1), 2, 0))};
}

Operands cross_sums(Call& call) {
  return {weighed(call, call.input(1), part_of_heads(call, call.input(0), 2, 1))};
}

constexpr TranslationRow kProductRows[] = {
    {"FullyConnected", fully_connected},
    {"batch_dot", batch_dot},
    {"dot", dot},
    {"_linalg_gemm2 linalg_gemm2", linalg_gemm2},
    {"_contrib_div_sqrt_dim", divided_by_root_of_size},
    {"_contrib_interleaved_matmul_selfatt_qk", self_scores},
    {"_contrib_interleaved_matmul_selfatt_valatt", self_sums},
    {"_contrib_interleaved_matmul_encdec_qk", cross_scores},
    {"_contrib_interleaved_matmul_encdec_valatt", cross_sums},
};

}  // namespace

std::span<const TranslationRow> product_rows() {
  return kProductRows;
}

}  // namespace mezzo::convert::mxnet
