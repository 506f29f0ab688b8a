#include "nn/attention_mask.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "bridge/tensors.h"

namespace mezzo::nn {

at::Tensor AttentionMask::as_scores(const char* name, const at::Tensor& mask) const {
  const at::IntArrayRef sizes = mask.sizes();
  if (name == std::string_view("key_padding_mask")) {
    if (sizes == at::IntArrayRef{sizes_.batch, sizes_.keys}) return mask.unsqueeze(1).unsqueeze(2);
    raise<ConfigError>("MultiheadAttention", name, " is ", bridge::describe(mask), "; expected [",
                       sizes_.batch, ", ", sizes_.keys, "]");
  }
  if (sizes == at::IntArrayRef{sizes_.queries, sizes_.keys}) return mask;
  if (sizes == at::IntArrayRef{sizes_.batch * sizes_.heads, sizes_.queries, sizes_.keys})
    return mask.view({sizes_.batch, sizes_.heads, sizes_.queries, sizes_.keys});
  raise<ConfigError>("MultiheadAttention", name, " is ", bridge::describe(mask), "; expected [",
                     sizes_.queries, ", ", sizes_.keys, "] or [", sizes_.batch * sizes_.heads, ", ",
                     sizes_.queries, ", ", sizes_.keys, "]");
}

void AttentionMask::add(const char* name, const at::Tensor& mask) {
  if (!mask.defined()) return;
  const at::Tensor own = as_scores(name, mask);
  if (own.is_floating_point()) {
    added_ = added_.defined() ? added_.add(own) : own;
  } else {
    const at::Tensor hides = own.to(at::kBool);
    hidden_ = hidden_.defined() ? hidden_.logical_or(hides) : hides;
  }
}

void AttentionMask::add_open_key() {
  ++open_keys_;
  if (hidden_.defined()) hidden_ = at::constant_pad_nd(hidden_, {0, 1}, false);
  if (added_.defined()) added_ = at::constant_pad_nd(added_, {0, 1}, 0);
}

void AttentionMask::add_causal(at::Device device) {
  at::Tensor behind =
      at::ones({sizes_.queries, sizes_.keys}, at::TensorOptions(at::kBool).device(device)).triu(1);
  if (open_keys_ > 0) behind = at::constant_pad_nd(behind, {0, open_keys_}, false);
  hidden_ = hidden_.defined() ? hidden_.logical_or(behind) : behind;
}

at::Tensor AttentionMask::smallest(at::ScalarType type) const {
  return added_.defined() ? additive(type) : at::logical_not(hidden_);
}

at::Tensor AttentionMask::additive(at::ScalarType type) const {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  if (!hidden_.defined()) return added_.to(type);
  if (added_.defined()) return added_.to(type).masked_fill(hidden_, kNothing);
  return at::zeros({}, hidden_.options().dtype(type)).masked_fill(hidden_, kNothing);
}

}  // namespace mezzo::nn
