// Averages gradients during the backward pass.
//
// A hook on each parameter's accumulator tells when its gradient is complete; full buckets travel
// while the backward goes on, and the end of the backward waits for them. Decisions are those of
// ranks/bucket_schedule.h; this file carries them out on tensors.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "distributed/averaging.h"
#include "distributed/flat_buckets.h"
#include "mezzo/parallel.h"
#include "ranks/bucket_schedule.h"

namespace mezzo::parallel {

class GradientHooks;

class GradientReducer {
 public:
  struct Settings {
    std::int64_t message_size = 0;
    bool delayed = false;
    bool always_float = false;
    bool unused_allowed = true;
    AverageScale scale;
    std::vector<std::uint8_t> triggers;           // of each parameter
    std::optional<at::ScalarType> compress = {};  // the type on the wire
  };

  /// `lanes`: buckets take turns on them.
  GradientReducer(std::vector<ReducedParameter> parameters, Settings settings, ProcessGroup group,
                  std::vector<std::shared_ptr<Lane>> lanes);
  ~GradientReducer();

  /// Before a forward: parameters may have been frozen, unfrozen or given another type since, and a
  /// backward that an exception left is closed.
  void prepare();
  /// While false, backwards accumulate and nothing travels.
  void set_sync(bool sync) { sync_ = sync; }
  /// The user's way for a bucket instead of the average.
  void set_hook(CommHook hook);
  void set_compression(at::ScalarType type) { settings_.compress = type; }
  /// Called when a synchronised backward begins, before anything travels; returns the scale of this
  /// backward's average.
  void set_on_begin(std::function<AverageScale()> on_begin) { on_begin_ = std::move(on_begin); }

  /// Takes part in a backward of the other ranks with gradients of zero.
  void shadow_backward(AverageScale scale);
  /// For a rank whose loss touched no parameter: its backward ran no hook.
  void finish_without_gradients();
  /// Zeroes the gradients that are views, drops the others.
  void zero_gradients();

  std::vector<at::Tensor> buffers() const;
  DDPStatistics statistics() const;

 private:
  struct Sent {
    std::unique_ptr<Pending> average;
    std::function<void()> finish_hook;
  };

  void refresh(bool compare);
  bool is_current() const;
  void rebuild(const std::vector<int>& order);
  void hook(int parameter);
  void adopt(int parameter);
  void begin(std::int64_t backward);
  void end();
  void send(int bucket);
  void fill_bucket(int bucket);
  void start_bucket(int bucket, const at::Tensor& flat);
  void send_substitutes(int first, double gradient, double failed);
  void wait_all();
  std::vector<double> read_notes();
  std::vector<double> spread_notes(std::vector<double> own);
  void settle(const std::vector<double>& notes);
  void agree_on_order();
  void close_broken_backward();
  std::string name_of(int parameter) const;

  std::vector<ReducedParameter> all_;         // as given
  std::vector<ReducedParameter> parameters_;  // those that require gradients now
  std::vector<int> active_;                   // their indices in all_
  Settings settings_;
  const ProcessGroup group_;
  const std::vector<std::shared_ptr<Lane>> lanes_;
  CommHook hook_;
  std::function<AverageScale()> on_begin_;
  std::mutex mutex_;  // hooks may come from several device threads
  bool sync_ = true;
  bool order_agreed_ = false;
  AverageScale scale_;
  std::unique_ptr<FlatBuckets> buckets_;
  std::unique_ptr<ranks::BucketSchedule> schedule_;
  std::unique_ptr<GradientHooks> hooks_;
  std::vector<Sent> sent_;
  std::vector<double> notes_;      // of all buckets: what this rank says in the open backward
  std::vector<bool> arrived_;      // its gradient came in the open backward
  std::vector<bool> touched_;      // a gradient came since the last reduction
  std::vector<bool> was_defined_;  // there was a gradient before this backward though none came
  DDPStatistics counts_;
};

}  // namespace mezzo::parallel
