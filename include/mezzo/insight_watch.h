// A log of numerics: every so many steps, how large weights, gradients and updates are, and how
// much of them the type loses.
//
//   auto watch = mezzo::insight::watch(model, optimizer, *log, {.every = 100});
//   for (const auto& batch : batches) {
//     ...
//     optimizer.step();
//     watch.step();
//   }
#pragma once

#include <memory>

#include "mezzo/export.h"
#include "mezzo/insight_explain.h"
#include "mezzo/report.h"

namespace mezzo::insight {

/// How watch() watches.
struct WatchOptions {
  int every = 100;  ///< steps every, 2 * every, ... are watched; at least 1
};

/// @cond
namespace detail {
class Watching;
}
/// @endcond

/// Watches until it goes. Movable; made by watch(). Moved from, step() throws ConfigError.
///
/// Threads: belongs to one training loop.
class MEZZO_API Watch {
 public:
  /// For watch().
  explicit Watch(std::unique_ptr<detail::Watching> watching);
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) noexcept;
  ~Watch();

  /// After `optimizer.step()`. After a watched step the sink gets a report::StepWatched, and what
  /// the sink throws comes out of here. The step before a watched one ends with the preparations.
  void step();

 private:
  std::unique_ptr<detail::Watching> watching_;
};

/// @cond
namespace detail {
MEZZO_API Watch start_watch(Subject subject, report::Sink& sink, WatchOptions options);
}
/// @endcond

/// Looks at every so many steps of a training and hands the sink a report::StepWatched for each:
/// of every parameter that `optimizer` steps, and of every module that has some, norm, largest and
/// smallest magnitude, shares of zeros, subnormal and saturated values, and the histogram of
/// exponents
/// - of the weights, as the network holds them after the step,
/// - of the gradients of the last backward pass, times the loss scale, as autograd delivered them
///   and before ranks average them,
/// - of the updates: how far the step moved the masters, or the weights if there are none;
/// and the effective update ratio: norm of the update to norm of what it moved. At O1 and O4
/// weights and gradients are counted against the range of the low type, into which they are cast;
/// elsewhere against that of their own. Sparse gradients count by their stored values.
///
/// `model` is a Model (or a DistributedDataParallel around one), or a tuple or vector of them,
/// trained with `optimizer` at any level, O0 and `enabled = false` included. Every rank watches its
/// own; hand all but one a sink of their own. `sink` must outlive the handle.
///
/// Between watched steps nothing is attached and nothing is copied. For a watched step the values
/// that it moves are copied beforehand, so that memory for one copy of them is needed. On devices
/// the host waits when a watched step is reported, and at no other place. Weights, gradients and
/// random numbers are the same with and without, to the bit.
///
/// Throws ConfigError if `every` is below 1, or if the optimizer steps no parameter of the
/// model.
template <class M>
Watch watch(M& model, amp::Optimizer& optimizer, report::Sink& sink, WatchOptions options = {}) {
  return detail::start_watch(detail::subject_of(model, optimizer), sink, options);
}

}  // namespace mezzo::insight
