#include "ssd512/loader.h"

#include <mezzo/error.h>
#include <mezzo/safetensors.h>
#include <torch/types.h>

#include "ssd512/anchors.h"

namespace examples {

SyntheticDataLoader::SyntheticDataLoader(std::int64_t data_shape, std::int64_t batch_size,
                                         std::int64_t epoch_size, bool pinned)
    : epoch_size_(epoch_size) {
  const std::int64_t anchors = make_anchors(map_sizes_for(data_shape)).size(1);
  const auto uniform = [&](double least, at::IntArrayRef shape) {
    const at::Tensor values = torch::empty(shape).uniform_(least, 1);
    return pinned ? values.pin_memory() : values;
  };
  batch_.data = uniform(-1, {batch_size, 3, data_shape, data_shape});
  batch_.cls_targets = uniform(0, {batch_size, anchors});
  batch_.box_targets = uniform(0, {batch_size, anchors, 4});
}

SyntheticDataLoader::SyntheticDataLoader(const std::string& file, std::int64_t epoch_size)
    : epoch_size_(epoch_size) {
  const auto tensors = mezzo::load_safetensors(file);
  const auto take = [&](const std::string& name) {
    if (const at::Tensor* found = tensors.find(name)) return found->to(at::kFloat);
    throw mezzo::Error("'" + file + "' has no tensor '" + name +
                       "'; expected data, cls_targets and box_targets");
  };
  batch_ = {take("data"), take("cls_targets"), take("box_targets")};
  const bool is_square = batch_.data.dim() == 4 && batch_.data.size(1) == 3 &&
                         batch_.data.size(2) == batch_.data.size(3) && batch_.data.size(2) >= 32;
  if (!is_square) {
    throw mezzo::Error("'" + file +
                       "': data must be square images [N, 3, side, side] of side 32 or more");
  }
  const std::int64_t count = batch_.data.size(0);
  const std::int64_t anchors = make_anchors(map_sizes_for(batch_.data.size(2))).size(1);
  const bool fits = batch_.cls_targets.sizes() == at::IntArrayRef{count, anchors} &&
                    batch_.box_targets.sizes() == at::IntArrayRef{count, anchors, 4};
  if (!fits) {
    const std::string wanted = std::to_string(count) + ", " + std::to_string(anchors);
    throw mezzo::Error("'" + file + "': cls_targets must have the shape [" + wanted +
                       "] and box_targets [" + wanted + ", 4], as images of this size need");
  }
}

std::optional<Batch> SyntheticDataLoader::next() {
  if (counter_ >= epoch_size_) {
    counter_ %= epoch_size_;
    return std::nullopt;
  }
  ++counter_;
  return batch_;
}

}  // namespace examples
