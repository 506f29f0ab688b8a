// Decisions of devices about steps, read on the host once they have arrived: nothing waits.
#pragma once

#include <c10/core/Event.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "amp/overflow_ranks.h"
#include "core/torch.h"
#include "scaling/loss_scaler.h"

namespace mezzo::amp::detail {

/// One step, as its device decided it.
struct Decision {
  // Known to the host.
  int loss_id = 0;
  std::string reason;  // where it is skipped, without the ranks
  OverflowRanks ranks;

  // Known to the device, and to the host where scales are static.
  bool applied = true;
  double scale_before = 1;
  double scale_after = 1;
  std::int64_t stuck = 0;  // overflows in a row at the floor, this one included
};

/// Decisions on their way to the host, in their order.
class Decisions {
 public:
  /// Queues a copy of what the host does not know yet: it is on the flag's device or the host.
  void note(Decision known, const at::Tensor& found_inf, const scaling::ScaleValue& before,
            const scaling::ScaleValue& after, const at::Tensor& stuck);

  /// The oldest that has arrived; with `waits`, the oldest, once it has. Nothing if there is
  /// none.
  std::optional<Decision> next(bool waits);

  /// How many are on their way.
  std::int64_t open() const { return static_cast<std::int64_t>(queued_.size()); }

 private:
  struct Queued {
    Decision known;
    at::Tensor numbers;  // on the host: the flag, a number for each of `fields`, stuck overflows
    std::vector<double Decision::*> fields;
    bool has_stuck = false;
    std::optional<c10::Event> arrived;  // none: they are there
  };
  std::deque<Queued> queued_;
};

}  // namespace mezzo::amp::detail
