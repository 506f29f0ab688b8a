#include "mezzo/tensor_lists.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "bridge/tensors.h"

namespace mezzo {

at::Tensor flatten(at::TensorList tensors) {
  if (tensors.empty()) return at::empty({0}, at::kFloat);
  std::vector<at::Tensor> pieces;
  pieces.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized() ||
        tensor.scalar_type() != tensors[0].scalar_type() ||
        tensor.device() != tensors[0].device()) {
      raise<ConfigError>("flatten", "tensors[", i, "] is ", bridge::describe(tensor),
                         "; expected a dense tensor of the first one's type and device (",
                         bridge::describe(tensors[0]), ')');
    }
    pieces.push_back(bridge::is_dense(tensor)
                         ? at::as_strided(tensor, {tensor.numel()}, {1}, tensor.storage_offset())
                         : tensor.reshape({-1}));
  }
  return at::cat(pieces);
}

std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like) {
  std::int64_t needed = 0;
  for (std::size_t i = 0; i < like.size(); ++i) {
    if (!like[i].defined() || like[i].layout() != at::kStrided) {
      raise<ConfigError>("unflatten", "like[", i, "] is ", bridge::describe(like[i]),
                         "; expected a dense tensor");
    }
    needed += like[i].numel();
  }
  const bool is_flat = flat.defined() && flat.layout() == at::kStrided && flat.dim() == 1;
  if (!is_flat || !flat.is_contiguous() || flat.numel() != needed) {
    raise<ConfigError>("unflatten", "flat is ", bridge::describe(flat),
                       "; expected a contiguous 1-D tensor of ", needed, " elements");
  }
  std::vector<at::Tensor> views;
  views.reserve(like.size());
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : like) {
    const at::Tensor piece = flat.narrow(0, offset, tensor.numel());
    views.push_back(
        bridge::is_dense(tensor)
            ? at::as_strided(piece, tensor.sizes(), tensor.strides(), piece.storage_offset())
            : piece.view(tensor.sizes()));
    offset += tensor.numel();
  }
  return views;
}

}  // namespace mezzo
