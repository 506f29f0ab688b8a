// The images that a training was given.
#pragma once

#include <memory>

#include "imagenet/train/feed.h"
#include "imagenet/train/settings.h"

namespace examples::imagenet {

struct Data {
  std::unique_ptr<ImageFolder> folder, test_folder;  ///< null where images are synthetic
  std::int64_t kinds = 0;
  std::int64_t steps = 0;  ///< of a training epoch
  std::unique_ptr<Feed> training, test;
};

/// Opens the folder of the settings, or makes synthetic images. `tell` hears of skipped images.
/// Throws mezzo::Error for a folder that training cannot use.
Data open_data(const Settings& settings, at::Device device, Share share,
               std::function<void(const std::string&)> tell);

}  // namespace examples::imagenet
