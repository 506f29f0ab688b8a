// Ranks that run out of data at different times: before each collective of a training loop the
// ranks tell each other what comes, so that one which has nothing left can take part.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "distributed/lane.h"

namespace mezzo::parallel {

/// What a rank is about to do.
enum class Coming : std::int64_t {
  kNothing = 0,  // it has left the loop
  kBuffers,      // rank 0's buffers go round
  kBackward,     // gradients are reduced
  kFlag,         // an overflow flag is agreed on
};

struct Notice {
  Coming what = Coming::kNothing;
  std::int64_t detail = 0;  // kBackward: which reducer; kFlag: elements
  std::int64_t type = 0;    // kFlag: dtype
};

class JoinChannel {
 public:
  explicit JoinChannel(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}

  /// Tells the others and hears them: one small collective. Returns what those do that are still in
  /// their loops, nothing where all have left it. Throws Error where they are about to do different
  /// things.
  std::optional<Notice> exchange(const Notice& own);
  /// How many ranks are still in their loops, by the last exchange.
  int active() const noexcept { return active_; }
  /// The lowest rank that was still in its loop when last anybody was.
  int last_active_rank() const noexcept { return last_active_rank_; }

 private:
  std::shared_ptr<Lane> lane_;
  int active_ = 0;
  int last_active_rank_ = 0;
};

}  // namespace mezzo::parallel
