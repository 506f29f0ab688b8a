// When a bucket is sent: the state of one backward pass, without tensors.
//
// Every rank must send the same buckets in the same order, though its gradients arrive in another
// one and some never do. So a bucket goes only after all before it, and what is missing at the end
// of the backward goes then. Gradients may arrive from several threads at once (one per device).
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "ranks/bucket_plan.h"

namespace mezzo::ranks {

class BucketSchedule {
 public:
  /// Called with the index of each bucket to send, in order, under the schedule's lock: it starts
  /// the sending and returns.
  using Send = std::function<void(int bucket)>;

  /// The result of `arrive`.
  enum class Arrival {
    kCounted,   // first time in this backward
    kRepeated,  // again, while its bucket still waits: harmless
    kTooLate,   // again, after its bucket was sent: the sum that went out lacks it
  };

  /// `delayed`: nothing is sent before the end of the backward.
  /// `announce` comes before each `send`; a bucket whose announcement throws was not sent.
  BucketSchedule(BucketPlan plan, bool delayed, Send send, Send announce = nullptr);

  const BucketPlan& plan() const noexcept { return plan_; }

  /// A backward begins. True if the one before it never ended (an exception left it): its buckets
  /// from `next()` on were not sent.
  bool begin(std::int64_t backward);
  /// Is this backward the one that runs?
  bool runs(std::int64_t backward) const;
  /// Is there a backward that began and has not ended?
  bool open() const;
  /// The gradient of a parameter is complete; sends what can go.
  Arrival arrive(int parameter);
  /// The backward is over: sends what is left. It is open until close().
  void finish();
  /// Nothing more is sent in the open backward.
  void close();
  /// The next bucket goes by another way.
  void skip();

  /// The first bucket that was not sent in the open backward.
  int next() const;
  /// The parameters in the order of their arrival in the last backward; those that never came
  /// follow in the plan's order.
  std::vector<int> arrival_order() const;
  /// Did the parameter's gradient arrive in the last backward?
  bool arrived(int parameter) const;

 private:
  void send_ready(bool all);

  const BucketPlan plan_;
  const bool delayed_;
  const Send send_;
  const Send announce_;
  mutable std::mutex mutex_;
  std::int64_t backward_ = -1;
  bool open_ = false;
  int next_ = 0;
  std::vector<int> missing_;   // of each bucket: parameters that have not arrived
  std::vector<bool> arrived_;  // of each parameter
  std::vector<int> order_;
};

}  // namespace mezzo::ranks
