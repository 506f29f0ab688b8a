// The masks of an attention, joined.
#pragma once

#include <cstdint>

#include "core/torch.h"

namespace mezzo::nn {

/// The sizes of an attention, without keys that the layer adds.
struct AttentionSizes {
  std::int64_t batch, heads, queries, keys;
};

/// The positions hidden from the queries, and the numbers added to their scores.
class AttentionMask {
 public:
  explicit AttentionMask(AttentionSizes sizes) : sizes_(sizes) {}

  /// A mask of the caller's: [batch, keys], [queries, keys] or [batch * heads, queries, keys]; bool
  /// (true: not looked at) or floating-point (added). Nothing if undefined.
  void add(const char* name, const at::Tensor& mask);
  /// A key at the end that all queries look at.
  void add_open_key();
  /// A query looks at no key behind its own place.
  void add_causal(at::Device device);

  bool any() const { return hidden_.defined() || added_.defined(); }

  /// For scaled_dot_product_attention: true where a key is looked at, if there is nothing to add.
  at::Tensor smallest(at::ScalarType type) const;
  /// Numbers to add to scores of this type.
  at::Tensor additive(at::ScalarType type) const;

 private:
  at::Tensor as_scores(const char* name, const at::Tensor& mask) const;

  AttentionSizes sizes_;
  std::int64_t open_keys_ = 0;
  at::Tensor hidden_;  // bool
  at::Tensor added_;   // floating-point
};

}  // namespace mezzo::nn
