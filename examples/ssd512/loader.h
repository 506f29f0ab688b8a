// The tutorial's data loader: one batch of noise, over and over.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace examples {

struct Batch {
  at::Tensor data;         ///< [N, 3, side, side]
  at::Tensor cls_targets;  ///< [N, anchors]
  at::Tensor box_targets;  ///< [N, anchors, 4]
};

class SyntheticDataLoader {
 public:
  /// Images uniform between -1 and 1, targets between 0 and 1, in pinned memory where `pinned`.
  SyntheticDataLoader(std::int64_t data_shape, std::int64_t batch_size, std::int64_t epoch_size,
                      bool pinned);
  /// The batch of a safetensors file instead: data, cls_targets and box_targets. Throws
  /// mezzo::Error, which names the file, where one is missing or they do not fit each other.
  SyntheticDataLoader(const std::string& file, std::int64_t epoch_size);

  /// The batch, `epoch_size` times, then nothing, once: the next epoch begins.
  std::optional<Batch> next();

  const Batch& batch() const { return batch_; }

 private:
  Batch batch_;
  std::int64_t epoch_size_, counter_ = 0;
};

}  // namespace examples
