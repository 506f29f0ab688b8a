// What others tell the casting layer about weights: that they changed, that they are weights at
// all, that they are gone.
#pragma once

#include <ATen/core/ATen_fwd.h>

namespace mezzo::casting {

/// After an update of these weights: the low-precision copies that were used since the last refresh
/// get the new values now, in one pass over the list, and count as fresh. No new copies are made.
/// Thread-safe.
void refresh_casts(at::TensorList weights);

/// The copies of these weights are cast again at their next use, whatever their version counters
/// say. Thread-safe.
void invalidate_casts(at::TensorList weights);

/// The same for every weight of the process.
void invalidate_all_casts();

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

/// Drops all copies of these weights. What graphs still hold lives on with them.
void forget_weights(at::TensorList weights);

}  // namespace mezzo::casting
