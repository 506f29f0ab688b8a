// Loss, top-1 and top-5, added up where they are computed and read only when they are shown.
#pragma once

#include <ATen/core/Tensor.h>

namespace examples::imagenet {

/// Means over images.
struct Figures {
  double loss = 0, top1 = 0, top5 = 0;
  double images = 0;
};

class Meter {
 public:
  explicit Meter(at::Device device);

  /// Adds a batch: its mean loss, its logits [N, kinds] and labels [N]. Waits for nothing.
  void add(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& labels);

  /// Over all ranks, each of which calls this. Waits for the device.
  Figures figures() const;

  /// The sums over all ranks, each of which calls this, and back on one of them.
  at::Tensor sums() const;
  void set_sums(const at::Tensor& sums);

 private:
  at::Tensor sums_;  // loss times images, right by the first guess, by five guesses, images
};

}  // namespace examples::imagenet
