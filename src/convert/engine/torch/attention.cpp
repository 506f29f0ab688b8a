// Attention as one operator (opset 23).
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

// [batch, length, heads * size] as [batch, heads, length, size].
Tensor by_head(const Call& c, std::size_t input, std::string_view heads) {
  const Tensor& x = c.in(input);
  if (x.dim() == 4) return x;
  const std::int64_t count = c.integer(heads, 0);
  if (x.dim() != 3 || count < 1 || x.size(2) % count != 0)
    refuse("input ", input, " does not fall into ", count, " heads");
  return x.reshape({x.size(0), x.size(1), count, -1}).transpose(1, 2);
}

// Adds the mask to the products: minus infinity where a query may not look.
Tensor masked(const Call& c, Tensor products, std::int64_t past) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (c.has(3)) {
    const Tensor& mask = c.in(3);
    products = mask.scalar_type() == at::kBool ? products.masked_fill(mask.logical_not(), kNever)
                                               : at::add(products, mask);
  }
  if (c.integer("is_causal", 0) == 0) return products;
  const Tensor query = at::arange(products.size(-2), at::kLong).add(past).unsqueeze(-1);
  const Tensor key = at::arange(products.size(-1), at::kLong).unsqueeze(0);
  return products.masked_fill(key.gt(query), kNever);
}

Tensors attention(const Call& c) {
  if (c.number("softcap", 0) != 0) refuse("a cap of the products");
  if (c.has(6)) refuse("lengths of keys without padding");
  if (c.outputs() > 3) refuse("the products as an output");
  const Tensor query = by_head(c, 0, "q_num_heads");
  Tensor key = by_head(c, 1, "kv_num_heads");
  Tensor value = by_head(c, 2, "kv_num_heads");
  const std::int64_t past = c.has(4) ? c.in(4).size(2) : 0;
  if (c.has(4)) key = at::cat({c.in(4), key}, 2);
  if (c.has(5)) value = at::cat({c.in(5), value}, 2);
  const std::int64_t heads = key.size(1);
  if (heads < 1 || value.size(1) != heads || query.size(1) % heads != 0)
    refuse(query.size(1), " heads that share ", heads, " of keys and ", value.size(1),
           " of values");
  const std::int64_t shared = query.size(1) / heads;
  const Tensor all_keys = at::repeat_interleave(key, shared, 1);
  const Tensor all_values = at::repeat_interleave(value, shared, 1);
  const double scale = c.is_given("scale") ? c.number("scale", 1)
                                           : 1 / std::sqrt(static_cast<double>(query.size(3)));
  const Tensor products = at::mul(at::matmul(query, all_keys.transpose(-1, -2)), scale);
  Tensor y = at::matmul(at::softmax(masked(c, products, past), -1), all_values);
  if (c.in(0).dim() == 3) y = y.transpose(1, 2).reshape({y.size(0), y.size(2), -1});
  return {y, key, value};
}

// Sorted by name.
constexpr TorchOperator kAttentionOperators[] = {
    {"Attention", attention},
};

}  // namespace

std::span<const TorchOperator> attention_operators() {
  return kAttentionOperators;
}

}  // namespace mezzo::convert
