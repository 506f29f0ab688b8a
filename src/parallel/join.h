// Ranks that run out of data at different times: before each collective of a training loop the
// ranks announce what comes, so that one which has nothing left can take part.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/lane.h"

namespace mezzo::parallel {

namespace detail {
class Group;
}

/// A rank's next action.
enum class Coming : std::int64_t {
  kNothing = 0,  // it has left the loop
  kLayout,       // other parameters require gradients, or have another type: ranks compare it
  kBuffers,      // rank 0's buffers go round
  kBackward,     // gradients are reduced from now on
  kBucket,       // one of them by a user's hook, which may wait
  kBackwardEnd,  // all travel, and are waited for
  kFlag,         // an overflow flag is agreed on
  kMoments,      // a batch norm's forward
  kSum,          // a batch norm's backward
};

struct Notice {
  Coming what = Coming::kNothing;
  std::int64_t model = 0;  // kLayout to kBackwardEnd: whose
  // kFlag, kMoments, kSum: over which group (Group::number), and a tensor's elements (kMoments:
  // channels), dtype and device; kBucket: its index.
  std::int64_t group = 0;
  std::int64_t elements = 0;
  std::int64_t type = 0;
  std::int64_t on_cuda = 0;

  /// As above, but for the group: ranks may be in groups of their own.
  bool agrees_with(const Notice& other) const;
};

/// The loop of a group's ranks, with the models that are trained in it.
class Join {
 public:
  /// A model as the loop sees it.
  struct Member {
    at::Device device;                          // of its parameters
    std::function<void(const Notice&)> shadow;  // takes part in what others announced about it
    std::function<void()> before_leaving;       // ends what this rank has begun
  };

  explicit Join(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}

  /// A model is trained in the loop from now on.
  void enter(std::int64_t model, Member member);
  /// The end of the loop for a model. With the first one this rank has left, and takes part in what
  /// the others do until they have too. Throws as collectives do, and Error if an error had
  /// ended the loop for all; the model is out in any case.
  void leave(std::int64_t model, const Session& session);
  bool has(std::int64_t model) const { return members_.contains(model); }
  /// Has this rank models in the loop, and data for them?
  bool in_loop() const noexcept { return !members_.empty() && !left_; }

  /// Tells the others and hears them: one small collective. Returns what those do that are still in
  /// their loops, nothing if all have left it. Throws Error on all ranks where they are about to
  /// do different things, and UnsupportedError if a layout changes that some rank has left; the
  /// loop has then ended for all of them.
  std::optional<Notice> exchange(const Notice& own);
  /// How many ranks are still in their loops, by the last exchange.
  int active() const noexcept { return active_; }
  /// The lowest rank that was still in its loop when last anybody was; 0 before.
  int first_active_rank() const noexcept { return first_active_rank_; }
  /// How many loops this rank has left.
  int loops_left() const noexcept { return loops_left_; }

 private:
  void follow(const Notice& notice, const Session& session);
  void follow_over(detail::Group& group, const Notice& notice) const;
  void check_together(const Notice& coming, int first, const Notice& notice, int rank);

  const std::shared_ptr<Lane> lane_;
  std::map<std::int64_t, Member> members_;
  bool left_ = false;
  bool broken_ = false;  // an error that all ranks had in the same exchange
  int active_ = 0;
  int first_active_rank_ = 0;
  int loops_left_ = 0;
  std::vector<std::int64_t> announced_groups_;  // by the last exchange, each once
};

/// Before a collective over `group` that a rank without data must take part in: announces it in the
/// join that the group's ranks are in, if they are in one. `notice.group` is filled in. Throws
/// UnsupportedError if only some of them are.
void announce(const detail::Group& group, Notice notice, std::string_view where);

}  // namespace mezzo::parallel
