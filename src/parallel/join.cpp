#include "parallel/join.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "parallel/group.h"
#include "parallel/rank_statistics.h"
#include "parallel/session.h"

namespace mezzo::parallel {
namespace {

constexpr std::int64_t kFields = 6;

std::array<std::int64_t, kFields> fields_of(const Notice& notice) {
  return {static_cast<std::int64_t>(notice.what),
          notice.model,
          notice.group,
          notice.elements,
          notice.type,
          notice.on_cuda};
}

Notice notice_of(const std::int64_t* fields) {
  return {static_cast<Coming>(fields[0]), fields[1], fields[2], fields[3], fields[4], fields[5]};
}

std::string describe(const Notice& notice) {
  const std::string model = " of DistributedDataParallel " + std::to_string(notice.model);
  const std::string group = " over process group " + std::to_string(notice.group);
  switch (notice.what) {
    case Coming::kNothing:
      break;
    case Coming::kLayout:
      return "a change of which parameters require gradients" + model;
    case Coming::kBuffers:
      return "the forward" + model;
    case Coming::kBackward:
      return "the backward" + model;
    case Coming::kBucket:
      return "bucket " + std::to_string(notice.elements) + model;
    case Coming::kBackwardEnd:
      return "the end of the backward" + model;
    case Coming::kFlag:
      return "agreeing on an overflow" + group;
    case Coming::kMoments:
      return "the forward of a batch norm of " + std::to_string(notice.elements) + " channels" +
             group;
    case Coming::kSum:
      return "the backward of a batch norm" + group;
  }
  return "nothing";
}

}  // namespace

bool Notice::agrees_with(const Notice& other) const {
  return what == other.what && model == other.model && elements == other.elements &&
         type == other.type && on_cuda == other.on_cuda;
}

void Join::enter(std::int64_t model, Member member) {
  if (members_.empty()) broken_ = false;
  left_ = false;
  members_.insert_or_assign(model, std::move(member));
}

void Join::leave(std::int64_t model, const Session& session) {
  struct Forget {
    Join& join;
    std::int64_t model;
    ~Forget() {
      join.members_.erase(model);
      if (join.members_.empty()) ++join.loops_left_;
    }
  };
  const Forget forget{*this, model};
  if (broken_) raise("join", "an error has ended the loop: weights were not made equal");
  if (left_) return;
  for (const auto& [number, member] : members_) member.before_leaving();
  left_ = true;
  while (const std::optional<Notice> coming = exchange({})) follow(*coming, session);
}

void Join::follow(const Notice& notice, const Session& session) {
  if (notice.model != 0) {
    const auto member = members_.find(notice.model);
    if (member == members_.end()) {
      raise("join", "another rank is at ", describe(notice), ", which is not in this join()");
    }
    member->second.shadow(notice);
    return;
  }
  for (const std::int64_t number : announced_groups_) {
    // Null: a group that this process is no member of.
    if (const auto group = session.group_of(number)) follow_over(*group, notice);
  }
}

void Join::follow_over(detail::Group& group, const Notice& notice) const {
  const at::Device device = notice.on_cuda != 0 ? members_.begin()->second.device : at::kCPU;
  const auto numbers = at::TensorOptions(device).dtype(static_cast<at::ScalarType>(notice.type));
  switch (notice.what) {
    case Coming::kFlag:
      group.flags().all_reduce(at::zeros({notice.elements}, numbers), ReduceOp::kMax)->wait();
      break;
    case Coming::kMoments:
      give_no_moments(notice.elements, device, group);
      break;
    case Coming::kSum:
      group.statistics().all_reduce(at::zeros({notice.elements}, numbers))->wait();
      break;
    default:
      break;
  }
}

// Whoever does not say the same ends the loop for all: those who wait in it would wait for ever.
void Join::check_together(const Notice& coming, int first, const Notice& notice, int rank) {
  if (coming.agrees_with(notice)) return;
  broken_ = true;
  raise("join", "ranks are at different places of their loops: rank ", first, " at ",
        describe(coming), ", rank ", rank, " at ", describe(notice));
}

std::optional<Notice> Join::exchange(const Notice& own) {
  if (broken_) raise("join", "an error has ended the loop: close its guards");
  const at::Tensor mine = at::empty({kFields}, at::kLong);
  const auto fields = fields_of(own);
  std::copy(fields.begin(), fields.end(), mine.mutable_data_ptr<std::int64_t>());
  const at::Tensor all = at::empty({lane_->size(), kFields}, at::kLong);
  lane_->all_gather(all, mine)->wait();
  const std::int64_t* theirs = all.const_data_ptr<std::int64_t>();
  std::optional<Notice> coming;
  int first = 0;
  active_ = 0;
  announced_groups_.clear();
  for (int rank = 0; rank < lane_->size(); ++rank) {
    const Notice notice = notice_of(theirs + rank * kFields);
    if (notice.what == Coming::kNothing) continue;
    ++active_;
    if (std::ranges::find(announced_groups_, notice.group) == announced_groups_.end()) {
      announced_groups_.push_back(notice.group);
    }
    if (!coming) {
      coming = notice;
      first = rank;
      first_active_rank_ = rank;
    } else {
      check_together(*coming, first, notice, rank);
    }
  }
  if (coming && coming->what == Coming::kLayout && active_ < lane_->size()) {
    broken_ = true;
    raise<UnsupportedError>(
        "join", "parameters of DistributedDataParallel ", coming->model, " were frozen, unfrozen ",
        "or given another type after a rank had run out of data, which cannot do the same; do it ",
        "before the loop, or while all ranks have data");
  }
  return coming;
}

void announce(const detail::Group& group, Notice notice, std::string_view where) {
  const std::shared_ptr<Join> join = group.session()->join_of(group.ranks(), where);
  if (join == nullptr) return;
  notice.group = group.number();
  join->exchange(notice);
}

}  // namespace mezzo::parallel
