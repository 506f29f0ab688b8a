// State from init_process_group() to destroy_process_group(): the store, the transports, and
// the first failure, after which nothing works any more.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/store.h"

namespace mezzo::parallel {

class Join;
class Lane;

namespace detail {
class Group;
}

class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    int local_rank = 0;
    std::chrono::milliseconds timeout{};
    bool compare_calls = false;
    std::shared_ptr<Store> store;  // null in a world of one
    std::shared_ptr<Engine> cpu;   // null in a world of one
    std::shared_ptr<Engine> cuda;  // null: CUDA tensors travel as CPU copies
  };
  explicit Session(Options options) : options_(std::move(options)) {}

  int rank() const noexcept { return options_.rank; }
  int size() const noexcept { return options_.size; }
  int local_rank() const noexcept { return options_.local_rank; }
  bool compares_calls() const noexcept { return options_.compare_calls; }
  std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }

  /// Connects the members of a lane; all of them call it with the same name.
  std::shared_ptr<Lane> open_lane(const std::string& name, int rank, int size);

  /// Raises the Error of the first failure, if there was one.
  void check_alive() const;
  /// A collective failed on this rank: leaves a note for the others, drops all transports so that
  /// they see it at once, waits shortly for their notes and raises an Error that names the ranks
  /// that left none.
  [[noreturn]] void fail(const std::string& call, const std::string& text);
  /// Drops all transports.
  void close();

  /// The groups that this process is a member of, by their numbers; null for others.
  void remember_group(std::int64_t number, const std::shared_ptr<detail::Group>& group);
  std::shared_ptr<detail::Group> group_of(std::int64_t number) const;
  /// A loop that these ranks may leave one by one.
  void remember_join(const std::vector<int>& ranks, const std::shared_ptr<Join>& join);
  /// The loop that all these ranks are in; null if this process is in none with any of them.
  /// Throws UnsupportedError if it is in one with some of them: others would not learn of it.
  std::shared_ptr<Join> join_of(const std::vector<int>& ranks, std::string_view where) const;
  /// How many loops over at least these ranks this process has left.
  int loops_left(const std::vector<int>& ranks) const;

 private:
  void drop_lanes();
  std::string describe_others();

  const Options options_;
  mutable std::mutex mutex_;
  std::string failure_;
  bool closed_ = false;
  std::vector<std::weak_ptr<Lane>> lanes_;
  std::map<std::int64_t, std::weak_ptr<detail::Group>> groups_;
  struct Loop {
    std::vector<int> ranks;
    std::weak_ptr<Join> join;
  };
  std::vector<Loop> loops_;
};

}  // namespace mezzo::parallel
