// The object behind a ProcessGroup handle: the members, and the lanes that are made with the group.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/process_group.h"
#include "parallel/lane.h"
#include "parallel/rank_words.h"
#include "parallel/session.h"

namespace mezzo::parallel {
class Join;
}

namespace mezzo::parallel::detail {

class Group {
 public:
  /// Connects the members; all of them come here with the same number (0: all ranks). A process
  /// that is no member gets a handle without lanes.
  static std::shared_ptr<Group> connect(int number, std::shared_ptr<Session> session,
                                        std::vector<int> ranks);
  Group(int number, std::shared_ptr<Session> session, std::vector<int> ranks);

  int number() const noexcept { return number_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  const std::shared_ptr<Session>& session() const noexcept { return session_; }

  /// Lanes for callers' collectives, for statistics of batch norms and for overflow flags. Made at
  /// once: were they made at first use, two ranks could make them in different orders and wait for
  /// each other.
  Lane& calls() const { return member(calls_); }
  Lane& statistics() const { return member(statistics_); }
  Lane& flags() const { return member(flags_); }

  /// A lane of one's own. All members call this in the same order.
  std::shared_ptr<Lane> open_lane(const std::string& purpose);

  /// Counts objects made over this group, equally on all ranks.
  int next_number() { return ++numbered_; }
  /// The loop that members may leave one by one. All members ask for it first in the same order.
  const std::shared_ptr<Join>& join();

  /// The words of ranks in batch norms on devices.
  UnheardWords& unheard_words() noexcept { return unheard_words_; }

  /// The sum over all lanes, the opened ones included.
  ProcessGroup::Counts counts() const;

 private:
  Lane& member(const std::shared_ptr<Lane>& lane) const;

  const int number_;
  const std::string name_;
  const std::shared_ptr<Session> session_;
  const std::vector<int> ranks_;
  int rank_ = -1;
  int opened_ = 0;
  int numbered_ = 0;
  std::shared_ptr<Join> join_;
  std::shared_ptr<Lane> calls_;
  std::shared_ptr<Lane> statistics_;
  std::shared_ptr<Lane> flags_;
  std::vector<std::weak_ptr<Lane>> others_;
  UnheardWords unheard_words_;
};

}  // namespace mezzo::parallel::detail

namespace mezzo::parallel {

/// The group that init_process_group() made; null without one.
std::shared_ptr<detail::Group> current_world();

/// The group meant: the given one, else all ranks. Error without a process group, or where this
/// process is no member.
ProcessGroup group_or_world(const std::optional<ProcessGroup>& group, const char* where);

}  // namespace mezzo::parallel
