#include "parallel/session.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include "parallel/join.h"
#include "parallel/lane.h"
#include "ranks/rank_list.h"

namespace mezzo::parallel {
namespace {

// How long a failed rank waits for the notes of the others: they see its connection go at once.
constexpr std::chrono::milliseconds kReportTime{1000};

}  // namespace

std::shared_ptr<Lane> Session::open_lane(const std::string& name, int rank, int size) {
  check_alive();
  std::shared_ptr<Communicator> cpu;
  std::shared_ptr<Communicator> cuda;
  if (size == 1) {
    cpu = cuda = solo_communicator();
  } else {
    try {
      cpu = options_.cpu->connect(name, rank, size);
      if (options_.cuda != nullptr) cuda = options_.cuda->connect("cuda/" + name, rank, size);
    } catch (const std::exception& failure) {
      fail("connecting '" + name + "'", text_of(failure));
    }
  }
  auto lane =
      std::make_shared<Lane>(name, shared_from_this(), rank, size, std::move(cpu), std::move(cuda));
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(),
                              [](const auto& other) { return other.expired(); }),
               lanes_.end());
  lanes_.push_back(lane);
  return lane;
}

void Session::check_alive() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.empty()) {
    raise("parallel",
          "this process group failed before; start the program again. It said: ", failure_);
  }
  if (closed_) raise("parallel", "this process group was destroyed");
}

void Session::drop_lanes() {
  std::vector<std::weak_ptr<Lane>> lanes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lanes.swap(lanes_);
  }
  for (const auto& weak : lanes) {
    if (const auto lane = weak.lock()) lane->drop();
  }
}

std::string Session::describe_others() {
  std::vector<int> silent;
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) silent.push_back(other);
  }
  std::ostringstream text;
  const auto end = std::chrono::steady_clock::now() + kReportTime;
  while (!silent.empty() && std::chrono::steady_clock::now() < end) {
    std::vector<int> still;
    for (int other : silent) {
      const std::string note = recorded_failure(*options_.store, other);
      if (note.empty()) {
        still.push_back(other);
      } else {
        text << "; rank " << other << " reported: " << note;
      }
    }
    silent.swap(still);
    if (!silent.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (!silent.empty()) {
    text << "; ranks that did not report: " << ranks::listed(silent)
         << " (ended, or hanging outside of collectives)";
  }
  return text.str();
}

void Session::fail(const std::string& call, const std::string& text) {
  check_alive();
  std::ostringstream message;
  message << call << " failed on rank " << rank() << " of " << size() << ": " << text;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = message.str();
  }
  std::string others;
  try {
    record_failure(*options_.store, rank(), call + ": " + text);
    drop_lanes();
    others = describe_others();
  } catch (const std::exception& gone) {
    drop_lanes();
    others =
        "; the store cannot be asked about the other ranks, its host (rank 0 or the "
        "launcher) is gone: " +
        text_of(gone);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = message.str() + others;
  }
  raise("parallel", message.str(), others);
}

void Session::close() {
  drop_lanes();
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

void Session::remember_group(std::int64_t number, const std::shared_ptr<detail::Group>& group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  groups_[number] = group;
}

std::shared_ptr<detail::Group> Session::group_of(std::int64_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = groups_.find(number);
  return found == groups_.end() ? nullptr : found->second.lock();
}

void Session::remember_join(const std::vector<int>& ranks, const std::shared_ptr<Join>& join) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(loops_, [](const Loop& loop) { return loop.join.expired(); });
  loops_.push_back({ranks, join});
}

std::shared_ptr<Join> Session::join_of(const std::vector<int>& ranks,
                                       std::string_view where) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Loop& loop : loops_) {
    std::shared_ptr<Join> join = loop.join.lock();
    if (join == nullptr || !join->in_loop()) continue;
    const auto inside = std::ranges::count_if(
        ranks, [&](int one) { return std::ranges::find(loop.ranks, one) != loop.ranks.end(); });
    if (inside == static_cast<std::ptrdiff_t>(ranks.size())) return join;
    if (inside > 0) {
      raise<UnsupportedError>(
          where, "inside join() over ranks ", ranks::listed(loop.ranks),
          " a process group of ranks ", ranks::listed(ranks),
          " cannot be used: ranks outside of the join() would not learn who has "
          "left; wrap the model over all of them");
    }
  }
  return nullptr;
}

int Session::loops_left(const std::vector<int>& ranks) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int left = 0;
  for (const Loop& loop : loops_) {
    const std::shared_ptr<Join> join = loop.join.lock();
    if (join == nullptr) continue;
    const bool over_all = std::ranges::all_of(
        ranks, [&](int one) { return std::ranges::find(loop.ranks, one) != loop.ranks.end(); });
    if (over_all) left += join->loops_left();
  }
  return left;
}

}  // namespace mezzo::parallel
