#include "mezzo/attention.h"

#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>
#include <optional>

#include "bridge/tensors.h"
#include "core/scalar_type.h"
#include "core/torch.h"
#include "nn/attention_mask.h"

namespace mezzo::nn {
namespace {

constexpr const char* kAttention = "MultiheadAttention";

void check_argument(const char* name, const at::Tensor& tensor, std::int64_t features) {
  if (tensor.defined() && tensor.dim() == 3 && tensor.size(2) == features) return;
  raise<ConfigError>(kAttention, name, " is ", bridge::describe(tensor),
                     "; expected [length, batch, ", features, "]");
}

/// [length, batch, heads * features] as [batch, heads, length, features].
at::Tensor by_heads(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).permute({1, 2, 0, 3});
}

at::Tensor third(const at::Tensor& of_all, std::int64_t which) {
  if (!of_all.defined()) return {};
  const std::int64_t size = of_all.size(0) / 3;
  return of_all.narrow(0, which * size, size);
}

/// One more key and value at the end of each sequence.
at::Tensor with_one_more(const at::Tensor& sequences, const at::Tensor& one) {
  return at::cat({sequences, one.to(sequences.scalar_type()).expand({1, sequences.size(1), -1})});
}

}  // namespace

struct MultiheadAttentionImpl::Projected {
  at::Tensor query, key, value;
};

MultiheadAttentionImpl::MultiheadAttentionImpl(std::int64_t embed_dim, std::int64_t num_heads)
    : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& given)
    : options(given) {
  MultiheadAttentionImpl::reset();
}

bool MultiheadAttentionImpl::same_sizes() const {
  return options.kdim() == options.embed_dim() && options.vdim() == options.embed_dim();
}

void MultiheadAttentionImpl::reset() {
  const std::int64_t size = options.embed_dim();
  const std::int64_t heads = options.num_heads();
  if (size <= 0 || options.kdim() <= 0 || options.vdim() <= 0 || heads <= 0 || size % heads != 0) {
    raise<ConfigError>(kAttention, "embed_dim is ", size, " and num_heads ", heads, ", kdim ",
                       options.kdim(), ", vdim ", options.vdim(),
                       "; expected sizes above 0 and heads that divide embed_dim");
  }
  if (same_sizes()) {
    in_proj_weight = register_parameter("in_proj_weight", at::empty({3 * size, size}));
  } else {
    q_proj_weight = register_parameter("q_proj_weight", at::empty({size, size}));
    k_proj_weight = register_parameter("k_proj_weight", at::empty({size, options.kdim()}));
    v_proj_weight = register_parameter("v_proj_weight", at::empty({size, options.vdim()}));
  }
  if (options.bias()) in_proj_bias = register_parameter("in_proj_bias", at::empty({3 * size}));
  out_proj = register_module(
      "out_proj", torch::nn::Linear(torch::nn::LinearOptions(size, size).bias(options.bias())));
  if (options.add_bias_kv()) {
    bias_k = register_parameter("bias_k", at::empty({1, 1, size}));
    bias_v = register_parameter("bias_v", at::empty({1, 1, size}));
  }
  reset_parameters();
}

void MultiheadAttentionImpl::reset_parameters() {
  for (const at::Tensor& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight}) {
    if (weight.defined()) torch::nn::init::xavier_uniform_(weight);
  }
  if (in_proj_bias.defined()) {
    torch::nn::init::constant_(in_proj_bias, 0);
    torch::nn::init::constant_(out_proj->bias, 0);
  }
  for (const at::Tensor& bias : {bias_k, bias_v}) {
    if (bias.defined()) torch::nn::init::xavier_normal_(bias);
  }
}

void MultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::MultiheadAttention(" << options.embed_dim() << ", " << options.num_heads()
         << ", dropout=" << options.dropout() << ", bias=" << (options.bias() ? "true" : "false")
         << ')';
}

MultiheadAttentionImpl::Projected MultiheadAttentionImpl::project(const at::Tensor& query,
                                                                  const at::Tensor& key,
                                                                  const at::Tensor& value) const {
  if (same_sizes() && query.is_same(key) && key.is_same(value)) {
    const auto all = at::linear(query, in_proj_weight, in_proj_bias).chunk(3, -1);
    return {all[0], all[1], all[2]};
  }
  const auto weight = [&](const at::Tensor& own, std::int64_t which) {
    return own.defined() ? own : third(in_proj_weight, which);
  };
  return {at::linear(query, weight(q_proj_weight, 0), third(in_proj_bias, 0)),
          at::linear(key, weight(k_proj_weight, 1), third(in_proj_bias, 1)),
          at::linear(value, weight(v_proj_weight, 2), third(in_proj_bias, 2))};
}

std::tuple<at::Tensor, at::Tensor> MultiheadAttentionImpl::forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& key_padding_mask, bool need_weights, const at::Tensor& attn_mask,
    bool average_attn_weights, bool is_causal) {
  check_argument("query", query, options.embed_dim());
  check_argument("key", key, options.kdim());
  check_argument("value", value, options.vdim());
  const std::int64_t batch = query.size(1);
  if (key.size(1) != batch || value.size(1) != batch || key.size(0) != value.size(0)) {
    raise<ConfigError>(kAttention, "query, key and value are ", query.sizes(), ", ", key.sizes(),
                       ", ", value.sizes(), "; expected one batch, and a value for each key");
  }
  AttentionMask mask({.batch = batch,
                      .heads = options.num_heads(),
                      .queries = query.size(0),
                      .keys = key.size(0)});
  mask.add("key_padding_mask", key_padding_mask);
  mask.add("attn_mask", attn_mask);

  auto [q, k, v] = project(query, key, value);
  if (bias_k.defined()) {
    k = with_one_more(k, bias_k);
    v = with_one_more(v, bias_v);
    mask.add_open_key();
  }
  if (options.add_zero_attn()) {
    const at::Tensor zero = at::zeros({1, 1, options.embed_dim()}, k.options());
    k = with_one_more(k, zero);
    v = with_one_more(v, zero);
    mask.add_open_key();
  }
  q = by_heads(q, options.num_heads());
  k = by_heads(k, options.num_heads());
  v = by_heads(v, options.num_heads());
  // The kernels know the causal mask, if it is the only one.
  const bool causal_kernel = is_causal && !mask.any() && !need_weights;
  if (is_causal && !causal_kernel) mask.add_causal(q.device());

  const double dropout = is_training() ? options.dropout() : 0.0;
  at::Tensor heads, weights;
  if (need_weights) {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    at::Tensor scores = at::matmul(q * scale, k.transpose(-2, -1));
    if (mask.any()) scores = scores + mask.additive(scores.scalar_type());
    const at::ScalarType type = scores.scalar_type();
    weights = at::_safe_softmax(scores, -1, is_low(type) ? at::kFloat : type);
    weights = at::dropout(weights, dropout, dropout > 0).to(v.scalar_type());
    heads = at::matmul(weights, v);
    if (average_attn_weights) weights = weights.mean(1);
  } else {
    heads = at::scaled_dot_product_attention(
        q, k, v, mask.any() ? std::optional(mask.smallest(q.scalar_type())) : std::nullopt, dropout,
        causal_kernel);
  }
  const at::Tensor joined =
      heads.permute({2, 0, 1, 3}).reshape({query.size(0), batch, options.embed_dim()});
  return {out_proj(joined), weights};
}

}  // namespace mezzo::nn
