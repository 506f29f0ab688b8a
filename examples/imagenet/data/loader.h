// Batches made by worker threads, some ahead of the training and always the same ones.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace examples::imagenet {

struct LoadedBatch {
  std::shared_ptr<std::uint8_t> pixels;  ///< image after image
  std::vector<std::int64_t> labels;      ///< as many as there are images
  std::vector<std::string> skipped;      ///< why images are missing: BadImage's words
};

struct LoaderOptions {
  int batch_size = 256;
  std::size_t image_bytes = 0;
  int workers = 4;       ///< 0: next() does the work itself
  int ahead = 2;         ///< batches that may be in the making or ready; at least 1
  bool skip_bad = true;  ///< false: a BadImage is an error of its batch
  /// Gives the memory of a batch, which may be page-locked; the heap without it. Called by one
  /// thread at a time.
  std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)> allocate = {};
};

/// Reads an item into its place and returns its label. Called by several threads at once.
using ReadItem = std::function<std::int64_t(std::int64_t item, std::uint8_t* into)>;

/// All workers make images of the same batch, so that it is ready early; what they make does not
/// depend on which of them makes it. Threads: begin(), next() and end() belong to one thread, but
/// stop() may be called while next() waits in another.
class Loader {
 public:
  explicit Loader(LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// From now on next() gives these items in this order, without the first `first_batch` batches.
  void begin(std::vector<std::int64_t> items, ReadItem read, std::int64_t first_batch = 0);

  /// The next batch, or nothing at the end. An exception of `read` for an item is thrown here, in
  /// the place of its batch (of several, the first item's), whatever the number of workers. Throws
  /// BadImage where all images of a batch were skipped.
  std::optional<LoadedBatch> next();

  /// Ends the workers; batches that were not taken are dropped.
  void end();

  /// Lets a next() that waits return nothing. For another thread.
  void stop();

 private:
  struct Batch;
  struct Claim;

  bool can_claim() const;
  std::optional<Claim> claim(std::unique_lock<std::mutex>& lock);
  void make(Claim claim);
  void work();

  LoaderOptions options_;
  ReadItem read_;
  std::vector<std::int64_t> items_;
  std::vector<std::thread> workers_;

  std::mutex mutex_;
  std::condition_variable may_claim_, is_ready_;
  std::deque<std::shared_ptr<Batch>> open_;  // from the batch `taken_` on
  std::int64_t next_item_ = 0, taken_ = 0;
  bool stopped_ = false;
  std::exception_ptr broken_;  // why a worker could not go on
};

}  // namespace examples::imagenet
