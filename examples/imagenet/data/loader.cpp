#include "imagenet/data/loader.h"

#include <mezzo/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "imagenet/data/jpeg.h"

namespace examples::imagenet {

struct Loader::Batch {
  std::shared_ptr<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  std::vector<std::exception_ptr> failures;  // one an item
  std::size_t missing;
};

struct Loader::Claim {
  std::shared_ptr<Batch> batch;
  std::size_t place;
  std::int64_t item;
};

Loader::Loader(LoaderOptions options) : options_(std::move(options)) {
  if (options_.batch_size < 1 || options_.ahead < 1 || options_.workers < 0) {
    throw mezzo::ConfigError("loader: batch size and batches ahead must be at least 1, workers 0");
  }
  if (!options_.allocate) {
    options_.allocate = [](std::size_t bytes) {
      return std::shared_ptr<std::uint8_t>(new std::uint8_t[bytes],
                                           std::default_delete<std::uint8_t[]>());
    };
  }
}

Loader::~Loader() {
  end();
}

void Loader::begin(std::vector<std::int64_t> items, ReadItem read, std::int64_t first_batch) {
  end();
  items_ = std::move(items);
  read_ = std::move(read);
  taken_ = first_batch;
  next_item_ =
      std::min(first_batch * options_.batch_size, static_cast<std::int64_t>(items_.size()));
  stopped_ = false;
  broken_ = nullptr;
  for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
}

void Loader::end() {
  stop();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  open_.clear();
  items_.clear();
}

void Loader::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  may_claim_.notify_all();
  is_ready_.notify_all();
}

bool Loader::can_claim() const {
  return next_item_ < static_cast<std::int64_t>(items_.size()) &&
         next_item_ / options_.batch_size < taken_ + options_.ahead;
}

std::optional<Loader::Claim> Loader::claim(std::unique_lock<std::mutex>& lock) {
  const auto count = static_cast<std::int64_t>(items_.size());
  may_claim_.wait(lock, [&] { return stopped_ || next_item_ == count || can_claim(); });
  if (stopped_ || next_item_ == count) return {};
  const std::int64_t index = next_item_ / options_.batch_size;
  const std::int64_t begin = index * options_.batch_size;
  if (index - taken_ == static_cast<std::int64_t>(open_.size())) {
    const auto size =
        static_cast<std::size_t>(std::min<std::int64_t>(options_.batch_size, count - begin));
    open_.push_back(std::make_shared<Batch>(Batch{options_.allocate(size * options_.image_bytes),
                                                  std::vector<std::int64_t>(size),
                                                  std::vector<std::exception_ptr>(size), size}));
  }
  const std::int64_t item = items_[static_cast<std::size_t>(next_item_)];
  const auto place = static_cast<std::size_t>(next_item_ - begin);
  ++next_item_;
  return Claim{open_[static_cast<std::size_t>(index - taken_)], place, item};
}

void Loader::make(Claim claim) {
  Batch& batch = *claim.batch;
  try {
    batch.labels[claim.place] =
        read_(claim.item, batch.pixels.get() + claim.place * options_.image_bytes);
  } catch (...) {
    batch.failures[claim.place] = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (--batch.missing == 0) is_ready_.notify_all();
  claim.batch.reset();  // so that the batch ends with the one who takes it
}

void Loader::work() {
  while (true) {
    std::optional<Claim> mine;
    {
      std::unique_lock lock(mutex_);
      try {
        mine = claim(lock);
      } catch (...) {  // no memory for a batch
        broken_ = std::current_exception();
        is_ready_.notify_all();
      }
    }
    if (!mine) return;
    make(std::move(*mine));
  }
}

namespace {

/// The words of a BadImage; everything else is thrown on.
std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const BadImage& error) {
    return error.what();
  }
}

}  // namespace

std::optional<LoadedBatch> Loader::next() {
  std::unique_lock lock(mutex_);
  if (taken_ * options_.batch_size >= static_cast<std::int64_t>(items_.size())) return {};
  const auto ready = [&] { return !open_.empty() && open_.front()->missing == 0; };
  while (options_.workers == 0 && !ready() && !stopped_) {
    std::optional<Claim> mine = claim(lock);
    lock.unlock();
    if (mine) make(std::move(*mine));
    lock.lock();
  }
  is_ready_.wait(lock, [&] { return stopped_ || broken_ != nullptr || ready(); });
  if (!ready() && broken_ != nullptr) std::rethrow_exception(broken_);
  if (!ready()) return {};
  const std::shared_ptr<Batch> batch = open_.front();
  open_.pop_front();
  ++taken_;
  may_claim_.notify_all();
  lock.unlock();

  LoadedBatch loaded{batch->pixels, {}, {}};
  for (std::size_t i = 0; i < batch->labels.size(); ++i) {
    if (batch->failures[i] != nullptr) {
      if (!options_.skip_bad) std::rethrow_exception(batch->failures[i]);
      loaded.skipped.push_back(words_of(batch->failures[i]));
      continue;
    }
    const std::size_t to = loaded.labels.size();
    if (to != i) {
      std::memcpy(loaded.pixels.get() + to * options_.image_bytes,
                  loaded.pixels.get() + i * options_.image_bytes, options_.image_bytes);
    }
    loaded.labels.push_back(batch->labels[i]);
  }
  if (loaded.labels.empty())
    throw BadImage("no image of a batch can be read; the first is " + loaded.skipped.front());
  return loaded;
}

}  // namespace examples::imagenet
