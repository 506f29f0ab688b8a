// Batches as the network takes them, prepared beside the training.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "imagenet/data/image_folder.h"
#include "imagenet/data/read_image.h"
#include "imagenet/data/sampler.h"

namespace examples::imagenet {

struct TensorBatch {
  at::Tensor images;  ///< [N, 3, side, side], float, mean 0 and deviation 1 over ImageNet
  at::Tensor labels;  ///< [N], int64
};

class Feed {
 public:
  virtual ~Feed() = default;

  /// From now on next() gives the batches of this epoch (from 0), without its first ones.
  virtual void begin(std::int64_t epoch, std::int64_t first_batch) = 0;

  /// On the training's device, ready to be used; nothing after the last one. Throws what a worker
  /// threw.
  virtual std::optional<TensorBatch> next() = 0;
};

struct FeedOptions {
  int workers = 4, batch_size = 256;
  Reading reading;
  bool skip_bad = true;
  bool channels_last = false;
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;
  Share share;
  std::function<void(const std::string&)> tell;  ///< an image that was skipped, once each
};

/// Images of a folder, which must outlive the feed: in random order and randomly cut for training,
/// else all of them in order. On a GPU, copies from page-locked memory and normalisation run on a
/// stream of their own.
std::unique_ptr<Feed> feed_for_training(const ImageFolder& folder, const FeedOptions& options);
std::unique_ptr<Feed> feed_for_evaluation(const ImageFolder& folder, const FeedOptions& options);

/// One batch of random images of `kinds` classes, `batches` times.
std::unique_ptr<Feed> synthetic_feed(std::int64_t kinds, std::int64_t batches,
                                     const FeedOptions& options);

}  // namespace examples::imagenet
