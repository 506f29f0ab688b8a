// Buckets on their way: averaged over lanes that take turns, in a type for the wire, or by the
// user.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mezzo/parallel.h"
#include "parallel/averaging.h"
#include "parallel/flat_buckets.h"

namespace mezzo::parallel {

class BucketSender {
 public:
  /// `always_float`: low types travel as float.
  BucketSender(ProcessGroup group, std::vector<std::shared_ptr<Lane>> lanes, bool always_float)
      : group_(std::move(group)), lanes_(std::move(lanes)), always_float_(always_float) {}

  /// The user's way for gradients instead of the average; it carries no notes. An exception from it
  /// ends the process group, as a failed collective does.
  void set_hook(CommHook hook) { hook_ = std::move(hook); }
  /// Called by announce() where there is a hook.
  void set_before_hook(std::function<void(int)> call) { before_hook_ = std::move(call); }
  bool has_hook() const { return hook_ != nullptr; }
  void set_compression(at::ScalarType type) { compress_ = type; }

  /// Before each start.
  void announce(int bucket) const;
  /// Starts a bucket, or a substitute for it, on its way.
  void start(const FlatBuckets& buckets, int bucket, const at::Tensor& flat, AverageScale scale);
  /// Waits for all that was started.
  void wait_all();
  /// The sums over the ranks, in a collective of its own.
  std::vector<double> sum(std::vector<double> notes);

  /// For what ranks agree on between reductions.
  Lane& lane() const { return *lanes_.front(); }
  std::int64_t bytes_sent() const noexcept { return bytes_sent_; }

 private:
  struct Sent {
    int bucket;
    std::unique_ptr<Pending> average;
    std::function<void()> finish_hook;
  };
  std::int64_t bytes_of(const at::Tensor& flat) const;
  // A hook that throws leaves the other ranks inside of collectives that nobody knows.
  template <class Call>
  auto guarded(int bucket, const Call& call) const;

  const ProcessGroup group_;
  const std::vector<std::shared_ptr<Lane>> lanes_;
  const bool always_float_;
  CommHook hook_;
  std::function<void(int)> before_hook_;
  std::optional<at::ScalarType> compress_;
  std::vector<Sent> sent_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace mezzo::parallel
