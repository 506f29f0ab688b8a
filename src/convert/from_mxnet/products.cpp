// Products of matrices.
#include <cmath>

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

Operands divided_by_root_of_size(Call& call) {
  const Operand& x = call.input(0);
  const std::int64_t size = call.dims(x, 1).back();
  const std::int64_t last = call.rank(x) - 1;
  if (size > 0) return {call.broadcast("Div", x, std::sqrt(static_cast<double>(size)))};
  const Operand count = call.cast(call.size(x, last), x.element);
  return {call.broadcast("Div", x, call.map("Sqrt", count))};
}

constexpr TranslationRow kProductRows[] = {
    {"FullyConnected", fully_connected},
    {"batch_dot", batch_dot},
    {"dot", dot},
    {"_linalg_gemm2", linalg_gemm2},
    {"linalg_gemm2", linalg_gemm2},
    {"_contrib_div_sqrt_dim", divided_by_root_of_size},
};

}  // namespace

std::span<const TranslationRow> product_rows() {
  return kProductRows;
}

}  // namespace mezzo::convert::mxnet
