#include "distributed/group.h"

#include <algorithm>
#include <utility>

namespace mezzo::parallel::detail {

Group::Group(std::string name, std::shared_ptr<Session> session, std::vector<int> ranks)
    : name_(std::move(name)), session_(std::move(session)), ranks_(std::move(ranks)) {
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
