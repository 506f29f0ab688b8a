#include "parallel/group.h"

#include <algorithm>
#include <utility>

#include "parallel/join.h"

namespace mezzo::parallel::detail {

std::shared_ptr<Group> Group::connect(int number, std::shared_ptr<Session> session,
                                      std::vector<int> ranks) {
  auto group = std::make_shared<Group>(number, std::move(session), std::move(ranks));
  if (group->rank() >= 0) group->session()->remember_group(number, group);
  return group;
}

Group::Group(int number, std::shared_ptr<Session> session, std::vector<int> ranks)
    : number_(number),
      name_(number == 0 ? "world" : "group" + std::to_string(number)),
      session_(std::move(session)),
      ranks_(std::move(ranks)) {
  const auto own = std::find(ranks_.begin(), ranks_.end(), session_->rank());
  if (own == ranks_.end()) return;
  rank_ = static_cast<int>(own - ranks_.begin());
  calls_ = session_->open_lane(name_ + "/calls", rank_, size());
  statistics_ = session_->open_lane(name_ + "/statistics", rank_, size());
  flags_ = session_->open_lane(name_ + "/flags", rank_, size());
}

Lane& Group::member(const std::shared_ptr<Lane>& lane) const {
  if (lane == nullptr) {
    raise("parallel", "rank ", session_->rank(), " is no member of this process group");
  }
  return *lane;
}

std::shared_ptr<Lane> Group::open_lane(const std::string& purpose) {
  member(calls_);
  auto lane = session_->open_lane(name_ + "/" + purpose + std::to_string(++opened_), rank_, size());
  others_.push_back(lane);
  return lane;
}

const std::shared_ptr<Join>& Group::join() {
  if (join_ == nullptr) {
    join_ = std::make_shared<Join>(open_lane("join"));
    session_->remember_join(ranks_, join_);
  }
  return join_;
}

ProcessGroup::Counts Group::counts() const {
  ProcessGroup::Counts sum;
  const auto add = [&](const Lane* lane) {
    if (lane == nullptr) return;
    sum.collectives += lane->counts().collectives;
    sum.bytes += lane->counts().bytes;
  };
  for (const auto& lane : {calls_, statistics_, flags_}) add(lane.get());
  for (const auto& lane : others_) add(lane.lock().get());
  return sum;
}

}  // namespace mezzo::parallel::detail
