// Attention of several heads over scaled_dot_product_attention: half and bfloat16, masks of both
// kinds, and memory that grows with the lengths, not with their product.
//
//   mezzo::nn::MultiheadAttention attention(mezzo::nn::MultiheadAttentionOptions(512, 8));
//   auto [y, weights] = attention(x, x, x, padding, /*need_weights=*/false);
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/options/activation.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <tuple>

#include "mezzo/export.h"

namespace mezzo::nn {

/// LibTorch's.
using MultiheadAttentionOptions = torch::nn::MultiheadAttentionOptions;

/// torch::nn::MultiheadAttention with the same options, parameters, names and start values, so that
/// files of one load into the other. Attention: Vaswani et al. 2017.
class MEZZO_API MultiheadAttentionImpl : public torch::nn::Cloneable<MultiheadAttentionImpl> {
 public:
  /// The defaults with these sizes.
  MultiheadAttentionImpl(std::int64_t embed_dim, std::int64_t num_heads);
  /// A number of heads that does not divide embed_dim, or sizes that are not above 0: ConfigError.
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& given);
  void reset() override;
  /// Starts the parameters anew.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// @param query  [L, N, embed_dim]
  /// @param key  [S, N, kdim]
  /// @param value  [S, N, vdim]
  /// @param key_padding_mask  [N, S]: true where a key is not looked at, or numbers to add to the
  /// scores
  /// @param need_weights  without them no matrix of L x S is made
  /// @param attn_mask  [L, S] or [N * num_heads, L, S]: true where a query does not look at a key,
  /// or numbers to add to the scores
  /// @param average_attn_weights  the weights' mean over heads
  /// @param is_causal  a query looks at no key behind its own place, beside what the masks say
  /// @return the output [L, N, embed_dim], and the weights after dropout: [N, L, S], or
  /// [N, num_heads, L, S] where they are not averaged; undefined if not needed. A query that may
  /// look at nothing has weights of 0.
  /// Sizes that do not fit: ConfigError.
  std::tuple<at::Tensor, at::Tensor> forward(
      const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
      const at::Tensor& key_padding_mask = {}, bool need_weights = true,
      const at::Tensor& attn_mask = {}, bool average_attn_weights = true, bool is_causal = false);

  MultiheadAttentionOptions options;  ///< as given
  at::Tensor in_proj_weight;  ///< [3 * embed_dim, embed_dim]; undefined if kdim or vdim differ
  at::Tensor in_proj_bias;    ///< [3 * embed_dim]; undefined without bias
  at::Tensor q_proj_weight, k_proj_weight, v_proj_weight;  ///< where kdim or vdim differ
  at::Tensor bias_k, bias_v;                               ///< [1, 1, embed_dim]; add_bias_kv
  torch::nn::Linear out_proj = nullptr;                    ///< behind the heads

 protected:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(at::Tensor())}, {4, torch::nn::AnyValue(true)},
                           {5, torch::nn::AnyValue(at::Tensor())}, {6, torch::nn::AnyValue(true)},
                           {7, torch::nn::AnyValue(false)})

 private:
  struct Projected;
  bool same_sizes() const;
  Projected project(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;
};
TORCH_MODULE(MultiheadAttention);

}  // namespace mezzo::nn
