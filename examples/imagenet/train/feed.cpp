#include "imagenet/train/feed.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <future>
#include <set>

#include "imagenet/data/loader.h"
#include "imagenet/train/normalize.h"

namespace examples::imagenet {
namespace {

/// Moves a batch to the device and normalises it, beside what the training's thread and stream do.
class Delivery {
 public:
  Delivery(at::Device device, bool channels_last) : device_(device), channels_last_(channels_last) {
    if (device_.is_cuda()) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      side_ = guard.getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
    }
  }

  struct Moved {
    TensorBatch batch;
    std::optional<c10::Event> done;  // on the side stream
    at::Tensor bytes;                // must stay until then
  };

  Moved move(const at::Tensor& bytes, const at::Tensor& labels) const {
    if (!side_) return {{normalized(bytes, channels_last_), labels}, {}, {}};
    const c10::StreamGuard guard(*side_);
    const at::Tensor there = bytes.to(device_, /*non_blocking=*/true);
    Moved moved{{normalized(there, channels_last_), labels.to(device_)}, {}, bytes};
    moved.done.emplace(device_.type());
    moved.done->record(*side_);
    return moved;
  }

  /// The calling thread's stream waits for the batch, and keeps it as long as it needs it.
  TensorBatch take(Moved moved) {
    if (moved.done) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      const c10::Stream current = guard.getStream(device_);
      moved.done->block(current);
      moved.batch.images.record_stream(current);
      moved.batch.labels.record_stream(current);
      if (last_) last_->done->synchronize();  // its bytes were copied long ago
      TensorBatch batch = moved.batch;
      last_ = std::move(moved);
      return batch;
    }
    return moved.batch;
  }

 private:
  at::Device device_;
  bool channels_last_;
  std::optional<c10::Stream> side_;
  std::optional<Moved> last_;
};

/// Memory that a GPU copies from while the program goes on.
std::shared_ptr<std::uint8_t> page_locked(std::size_t bytes) {
  const at::Tensor memory =
      torch::empty({static_cast<std::int64_t>(bytes)}, torch::dtype(at::kByte).pinned_memory(true));
  return {memory.mutable_data_ptr<std::uint8_t>(), [memory](std::uint8_t*) {}};
}

LoaderOptions loader_options(const FeedOptions& o) {
  constexpr int kAhead = 2;
  LoaderOptions options{.batch_size = o.batch_size,
                        .image_bytes = 3 * static_cast<std::size_t>(o.reading.side) *
                                       static_cast<std::size_t>(o.reading.side),
                        .workers = o.workers,
                        .ahead = kAhead,
                        .skip_bad = o.skip_bad};
  if (o.device.is_cuda()) options.allocate = page_locked;
  return options;
}

class FolderFeed : public Feed {
 public:
  FolderFeed(const ImageFolder& folder, const FeedOptions& options, bool training)
      : folder_(folder),
        options_(options),
        training_(training),
        loader_(loader_options(options)),
        delivery_(options.device, options.channels_last) {}

  ~FolderFeed() override { drop(); }

  void begin(std::int64_t epoch, std::int64_t first_batch) override {
    drop();
    const std::int64_t count = folder_.size();
    std::vector<std::int64_t> items =
        training_ ? training_order(count, options_.seed, epoch, options_.share)
                  : evaluation_order(count, options_.share);
    if (training_ && static_cast<int>(items.size()) > options_.batch_size)
      items.resize(items.size() - items.size() % static_cast<std::size_t>(options_.batch_size));
    loader_.begin(
        std::move(items),
        [this, epoch](std::int64_t item, std::uint8_t* into) { return read(epoch, item, into); },
        first_batch);
    prepare();
  }

  std::optional<TensorBatch> next() override {
    if (!coming_.valid()) return {};
    std::optional<Coming> coming = coming_.get();
    if (!coming) return {};
    prepare();
    for (const std::string& why : coming->skipped) {
      if (told_.insert(why).second && options_.tell) options_.tell("skipped image " + why);
    }
    return delivery_.take(std::move(coming->moved));
  }

 private:
  struct Coming {
    Delivery::Moved moved;
    std::vector<std::string> skipped;
  };

  std::int64_t read(std::int64_t epoch, std::int64_t item, std::uint8_t* into) const {
    const ImageFolder::Image& image = folder_.images[static_cast<std::size_t>(item)];
    constexpr std::uint64_t kPurpose = 2;  // not the order's numbers
    if (training_) {
      const Random random({options_.seed, static_cast<std::uint64_t>(epoch), kPurpose,
                           static_cast<std::uint64_t>(item)});
      read_for_training(image.file, options_.reading, random, into);
    } else {
      read_for_evaluation(image.file, options_.reading, into);
    }
    return image.kind;
  }

  void prepare() {
    coming_ = std::async(std::launch::async, [this]() -> std::optional<Coming> {
      std::optional<LoadedBatch> loaded = loader_.next();
      if (!loaded) return {};
      const auto count = static_cast<std::int64_t>(loaded->labels.size());
      const std::int64_t side = options_.reading.side;
      const at::Tensor bytes = torch::from_blob(
          loaded->pixels.get(), {count, side, side, 3}, [owner = loaded->pixels](void*) {},
          at::kByte);
      const at::Tensor labels = torch::tensor(loaded->labels, at::kLong);
      return Coming{delivery_.move(bytes, labels), std::move(loaded->skipped)};
    });
  }

  void drop() {
    loader_.stop();
    if (coming_.valid()) coming_.wait();
    coming_ = {};
    loader_.end();
  }

  const ImageFolder& folder_;
  FeedOptions options_;
  bool training_;
  Loader loader_;
  Delivery delivery_;
  std::future<std::optional<Coming>> coming_;
  std::set<std::string> told_;
};

class SyntheticFeed : public Feed {
 public:
  SyntheticFeed(std::int64_t kinds, std::int64_t batches, const FeedOptions& o)
      : batches_(batches) {
    constexpr std::uint64_t kPurpose = 3;
    Random random({o.seed, kPurpose, static_cast<std::uint64_t>(o.share.rank)});
    const std::int64_t side = o.reading.side;
    at::Tensor bytes = torch::empty({o.batch_size, side, side, 3}, at::kByte);
    auto* values = bytes.mutable_data_ptr<std::uint8_t>();
    for (std::int64_t i = 0; i < bytes.numel(); ++i)
      values[i] = static_cast<std::uint8_t>(random.below(256));
    std::vector<std::int64_t> labels;
    labels.reserve(static_cast<std::size_t>(o.batch_size));
    for (int i = 0; i < o.batch_size; ++i)
      labels.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(kinds))));
    batch_ = {normalized(bytes, o.channels_last).to(o.device),
              torch::tensor(labels, at::kLong).to(o.device)};
  }

  void begin(std::int64_t, std::int64_t first_batch) override { given_ = first_batch; }
  std::optional<TensorBatch> next() override {
    if (given_ >= batches_) return {};
    ++given_;
    return batch_;
  }

 private:
  std::int64_t batches_, given_ = 0;
  TensorBatch batch_;
};

}  // namespace

std::unique_ptr<Feed> feed_for_training(const ImageFolder& folder, const FeedOptions& options) {
  return std::make_unique<FolderFeed>(folder, options, true);
}

std::unique_ptr<Feed> feed_for_evaluation(const ImageFolder& folder, const FeedOptions& options) {
  return std::make_unique<FolderFeed>(folder, options, false);
}

std::unique_ptr<Feed> synthetic_feed(std::int64_t kinds, std::int64_t batches,
                                     const FeedOptions& options) {
  return std::make_unique<SyntheticFeed>(kinds, batches, options);
}

}  // namespace examples::imagenet
