#include "imagenet/train/data.h"

#include <algorithm>
#include <filesystem>

namespace examples::imagenet {

Data open_data(const Settings& s, at::Device device, Share share,
               std::function<void(const std::string&)> tell) {
  const FeedOptions options{
      .workers = s.workers,
      .batch_size = s.batch_size,
      .reading = {.side = s.image_size,
                  .crop = {.least_area = s.least_crop},
                  .centre_share = static_cast<double>(s.image_size) / s.resize},
      .skip_bad = s.skip_bad_images,
      .channels_last = s.channels_last,
      .device = device,
      .seed = static_cast<std::uint64_t>(s.seed),
      .share = share,
      .tell = std::move(tell)};
  const auto limited = [&](std::int64_t steps) {
    return s.steps > 0 ? std::min<std::int64_t>(steps, s.steps) : steps;
  };
  Data data;
  if (s.synthetic) {
    constexpr std::int64_t kImagesOfImageNet = 1281167, kTestBatches = 2;
    data.kinds = s.kinds;
    data.steps = limited(training_steps(kImagesOfImageNet, s.batch_size, share.ranks));
    data.training = synthetic_feed(data.kinds, data.steps, options);
    data.test = synthetic_feed(data.kinds, kTestBatches, options);
    return data;
  }
  const std::filesystem::path root = s.data;
  data.folder = std::make_unique<ImageFolder>(list_image_folder(root / "train"));
  data.test_folder = std::make_unique<ImageFolder>(list_image_folder(root / "val"));
  require_same_kinds(*data.folder, *data.test_folder);
  data.kinds = static_cast<std::int64_t>(data.folder->kinds.size());
  data.steps = limited(training_steps(data.folder->size(), s.batch_size, share.ranks));
  data.training = feed_for_training(*data.folder, options);
  data.test = feed_for_evaluation(*data.test_folder, options);
  return data;
}

}  // namespace examples::imagenet
