// Averages gradients during the backward pass.
//
// A hook on each parameter's accumulator shows when its gradient is complete; full buckets travel
// while the backward goes on, and the end of the backward waits for them. Decisions are those of
// ranks/bucket_schedule.h; this file carries them out on tensors.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/parallel.h"
#include "parallel/bucket_sender.h"
#include "parallel/device_numbers.h"
#include "parallel/flat_buckets.h"
#include "parallel/gradient_claims.h"
#include "parallel/streams.h"
#include "ranks/bucket_notes.h"
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
    AverageScale scale;                  // of a backward of all ranks
    std::vector<std::uint8_t> triggers;  // of each parameter
  };

  /// `lanes`: buckets take turns on them. `layout_lane`: for what is compared before a forward.
  GradientReducer(std::vector<ReducedParameter> parameters, Settings settings, ProcessGroup group,
                  std::vector<std::shared_ptr<Lane>> lanes, std::shared_ptr<Lane> layout_lane);
  ~GradientReducer();

  /// Before a forward: parameters may have been frozen, unfrozen or given another type since,
  /// gradients may have been put beside their buckets, and a backward that an exception left is
  /// closed. False inside of a backward, as in recomputation: there a forward changes nothing.
  /// Throws ConfigError if a later reducer has taken a parameter.
  bool prepare();
  /// While false, backwards accumulate and nothing travels.
  void set_sync(bool sync) { sync_ = sync; }
  /// How buckets travel.
  BucketSender& sender() noexcept { return sender_; }
  /// The terms of a synchronised backward's average.
  struct Terms {
    AverageScale scale;
    int ranks = 1;  // that have data
  };
  /// Called when a synchronised backward begins, before anything travels, and when all that it has
  /// to give travels, before it is waited for.
  void set_on_backward(std::function<Terms()> begins, std::function<void()> ends) {
    on_begin_ = std::move(begins);
    on_end_ = std::move(ends);
  }

  /// Called before ranks compare parameters that were frozen, unfrozen or given another type.
  void set_before_layout(std::function<void()> call) { before_layout_ = std::move(call); }

  /// Takes part in a backward of the other ranks with gradients of zero. Between begin and end
  /// other collectives of that backward may come, and each bucket where a hook sends them.
  void begin_shadow(AverageScale scale);
  void shadow_bucket(int bucket);
  void end_shadow();
  /// Ends a backward that an exception left, if there is one.
  void close_broken_backward();
  /// For a rank whose loss touched no parameter: its backward ran no hook. Nothing while gradients
  /// only accumulate.
  void finish_without_gradients();
  /// Zeroes the gradients that are views; with `set_to_none` drops the others and those of frozen
  /// parameters, else zeroes them too.
  void zero_gradients(bool set_to_none);

  std::vector<at::Tensor> buffers() const;
  DDPStatistics statistics() const;

 private:
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  // ---- the layout (gradient_layout.cpp)
  void refresh(bool compare);
  bool is_current() const;
  void rebuild(const std::vector<int>& order);
  void agree_on_order(bool reduced);

  // ---- a backward
  bool runs_backward() const { return schedule_->open() && !backward_.expired(); }
  void hook(int parameter);
  void adopt(int parameter);
  void look_for_overflow(int parameter);
  void begin(std::int64_t backward);
  void end();
  void send(int bucket);
  void fill_bucket(int bucket);
  void put_notes(const at::Tensor& there, const std::vector<double>& notes);
  void send_substitute(int bucket, double gradient, bool broke_off);
  bool must_know() const;
  std::vector<double> read_notes();
  void hear_of_last_backward();
  void check_use(const ranks::BucketReport& report, int ranks) const;
  void settle(const std::vector<double>& notes);
  void mark_reduced(const std::optional<std::vector<int>>& nonfinite_ranks);
  void send_shadow(int bucket);
  void close_open_backward();
  void adopt_strangers();
  void check_claims() const;
  std::string name_of(int parameter) const;

  std::vector<ReducedParameter> all_;         // as given
  std::vector<ReducedParameter> parameters_;  // those that require gradients now
  std::vector<int> active_;                   // their indices in all_
  Settings settings_;
  const ProcessGroup group_;
  BucketSender sender_;
  const std::shared_ptr<Lane> layout_lane_;
  std::function<Terms()> on_begin_;
  std::function<void()> on_end_;
  std::function<void()> before_layout_;
  std::mutex mutex_;                    // hooks may come from several device threads
  std::string taken_;                   // a parameter that a later reducer claimed; empty: none
  std::weak_ptr<const void> backward_;  // expires with the backward that the schedule is open for
  bool sync_ = true;
  bool order_agreed_ = false;
  Terms terms_;
  std::unique_ptr<FlatBuckets> buckets_;
  std::unique_ptr<ranks::BucketSchedule> schedule_;
  std::unique_ptr<GradientHooks> hooks_;
  // The notes of the last backward, on their way from a device, and what they are compared with.
  struct Unheard {
    std::vector<DeviceNumbers> notes;  // of each bucket
    Terms terms;
  };
  std::optional<Unheard> unheard_;
  std::vector<StreamSet> writers_;  // of each bucket, in the open backward
  std::vector<double> notes_;       // of all buckets: what this rank says in the open backward
  std::vector<bool> arrived_;       // its gradient came in the open backward
  std::vector<bool> touched_;       // a gradient came since the last reduction
  std::vector<bool> nonfinite_;     // ... and held an infinity or a NaN, as far as was looked
  std::vector<bool> was_defined_;   // there was a gradient before this backward though none came
  DDPStatistics counts_;
  std::unique_ptr<GradientClaims> claims_;  // last: who takes them calls back
};

}  // namespace mezzo::parallel
