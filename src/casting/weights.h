// Notices to the casting layer about weights: that they changed, that they are weights at
// all, that they are gone.
#pragma once

#include <ATen/core/ATen_fwd.h>

namespace mezzo::casting {

/// After an update of these weights: the low-precision copies that were used since the last refresh
/// get the new values now, in one pass over the list, and count as fresh. No new copies are made.
/// From now on the copies are kept from scope to scope, as those of weights whose every update is
/// reported (CastLoans reports as well), until leave_casts(). Thread-safe.
void refresh_casts(at::TensorList weights);

/// Nobody reports updates of these weights any more. Thread-safe.
void leave_casts(at::TensorList weights);

/// The copies of these weights are cast again at their next use, whatever their version counters
/// say. Thread-safe.
void invalidate_casts(at::TensorList weights);

/// The copies of all weights of the process are freed, but for what graphs still hold. Thread-safe.
void drop_all_casts();

/// These are weights even where they need no gradient (frozen ones): their casts are kept as well.
/// Nothing is kept alive.
void remember_weights(at::TensorList weights);

/// In the scopes that are opened on this thread while it lives: are weights cast once for many uses
/// (as without it), or at each use? Nests.
class WeightKeeping {
 public:
  [[nodiscard]] explicit WeightKeeping(bool keeps) noexcept;
  ~WeightKeeping();
  WeightKeeping(const WeightKeeping&) = delete;
  WeightKeeping& operator=(const WeightKeeping&) = delete;

  static bool here() noexcept;

 private:
  bool before_;
};

/// While it lives, the scopes of this thread may last over many updates: a copy that is used
/// between a backward pass and the update that follows, as in an evaluation there, is not kept.
/// Nests.
class LastingScope {
 public:
  [[nodiscard]] LastingScope() noexcept;
  ~LastingScope();
  LastingScope(const LastingScope&) = delete;
  LastingScope& operator=(const LastingScope&) = delete;

  static bool here() noexcept;
};

/// Drops all copies of these weights. Copies that graphs still hold live on with them.
void forget_weights(at::TensorList weights);

}  // namespace mezzo::casting
