// Layers of transformers that LibTorch computes by one operator where no gradients are asked for.
#include <cmath>
#include <limits>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// The mask as a summand of the scores. Its kinds are 0: of queries and keys for all sequences,
/// 1: of the keys of each, 2: of everything.
std::string added_mask(C c) {
  std::string mask = c.x("mask", at::kBool);
  const std::int64_t kind = c.i("mask_type", c.rank("mask") == 2 ? 1 : 2);
  if (kind == 1) mask = c.unsqueezed(mask, {1, 2});
  return c.one("Where",
               {mask, c.constant(-std::numeric_limits<double>::infinity()), c.constant(0)});
}

struct Attended {
  std::string result, weights;
};

/// Attention of `heads` over queries, keys and values that stand side by side.
Attended attended(C c, const std::string& all, std::int64_t width, std::int64_t heads) {
  const std::int64_t own = width / heads;
  const auto part = [&](std::int64_t i, const std::vector<std::int64_t>& order) {
    const std::string one = c.sliced(all, 2, i * width, (i + 1) * width);
    const std::string apart = c.one("Reshape", {one, c.g.ints({0, 0, heads, own})});
    return c.one("Transpose", {apart}, {{"perm", order}});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(own));
  const std::string query = c.one("Mul", {part(0, {0, 2, 1, 3}), c.constant(scale)});
  std::string scores = c.one("MatMul", {query, part(1, {0, 2, 3, 1})});
  if (c.has("mask")) scores = c.one("Add", {scores, added_mask(c)});
  const std::string weights = c.one("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  const std::string heads_apart =
      c.one("Transpose", {c.one("MatMul", {weights, part(2, {0, 2, 1, 3})})},
            {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  const std::string joined = c.one("Reshape", {heads_apart, c.g.ints({0, 0, width})});
  return {c.dense(joined, "proj_weight", "proj_bias"), weights};
}

std::string with_norm(C c, const std::string& x, std::string_view weight, std::string_view bias) {
  return c.one("LayerNormalization", {x, c.x(weight), c.x(bias)},
               {{"axis", std::int64_t{-1}}, {"epsilon", c.d("eps")}});
}

Names encoder_layer(C c) {
  const bool norm_first = c.b("norm_first");
  const auto first = [&](const std::string& x) {
    return with_norm(c, x, "norm_weight_1", "norm_bias_1");
  };
  const auto second = [&](const std::string& x) {
    return with_norm(c, x, "norm_weight_2", "norm_bias_2");
  };
  const auto attention = [&](const std::string& x) {
    return attended(c, c.dense(x, "qkv_weight", "qkv_bias"), c.i("embed_dim"), c.i("num_heads"))
        .result;
  };
  const auto feed_forward = [&](const std::string& x) {
    const std::string inner = c.dense(x, "ffn_weight_1", "ffn_bias_1");
    return c.dense(c.b("use_gelu") ? c.gelu(inner) : c.one("Relu", {inner}), "ffn_weight_2",
                   "ffn_bias_2");
  };
  const std::string x = c.x("src");
  if (norm_first) {
    const std::string middle = c.one("Add", {x, attention(first(x))});
    return {c.one("Add", {middle, feed_forward(second(middle))})};
  }
  const std::string middle = first(c.one("Add", {x, attention(x)}));
  return {second(c.one("Add", {middle, feed_forward(middle)}))};
}

Names self_attention(C c) {
  const std::string x = c.x("query");
  if (c.x("key") != x || c.x("value") != x) c.refuse("its queries, keys and values differ");
  const Attended made =
      attended(c, c.dense(x, "qkv_weight", "qkv_bias"), c.i("embed_dim"), c.i("num_head"));
  if (!c.b("need_weights")) return {made.result};
  if (!c.b("average_attn_weights")) return {made.result, made.weights};
  return {made.result, c.reduced("ReduceMean", made.weights, {1}, false, 4)};
}

constexpr Row kTransformers[] = {
    {"_transformer_encoder_layer_fwd", 17, encoder_layer},
    {"_native_multi_head_attention", 17, self_attention},
};

}  // namespace

std::span<const Row> transformer_rows() {
  return kTransformers;
}

}  // namespace mezzo::deploy::detail
