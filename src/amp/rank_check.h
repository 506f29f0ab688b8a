// Do all ranks hold the same weights and loss scales? Asked every so many steps, on request.
#pragma once

#include "amp/session.h"

namespace mezzo::amp::detail {

/// Throws Error on all ranks if they do not, which names the first that differs and the ranks;
/// does nothing if this process decides alone. One small collective where they are equal.
void expect_equal_ranks(Session& session);

/// Counts the steps of an optimizer for Options::expect_equal_every.
class RankCheck {
 public:
  explicit RankCheck(Session& session) : session_(session) {}

  /// After a step, applied or not.
  void note_step();

 private:
  Session& session_;
  int steps_ = 0;
  int loops_ = 0;  // join() loops that were left: who leaves early makes fewer steps
};

}  // namespace mezzo::amp::detail
