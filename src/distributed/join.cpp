#include "distributed/join.h"

#include <ATen/ops/empty.h>

namespace mezzo::parallel {

std::optional<Notice> JoinChannel::exchange(const Notice& own) {
  constexpr std::int64_t kFields = 3;
  const at::Tensor mine = at::empty({kFields}, at::kLong);
  std::int64_t* fields = mine.mutable_data_ptr<std::int64_t>();
  fields[0] = static_cast<std::int64_t>(own.what);
  fields[1] = own.detail;
  fields[2] = own.type;
  const at::Tensor all = at::empty({lane_->size(), kFields}, at::kLong);
  lane_->all_gather(all, mine)->wait();
  const std::int64_t* theirs = all.const_data_ptr<std::int64_t>();
  std::optional<Notice> coming;
  int first = 0;
  active_ = 0;
  for (int rank = 0; rank < lane_->size(); ++rank) {
    const std::int64_t* one = theirs + rank * kFields;
    const Notice notice{static_cast<Coming>(one[0]), one[1], one[2]};
    if (notice.what == Coming::kNothing) continue;
    ++active_;
    if (!coming) {
      coming = notice;
      first = rank;
      last_active_rank_ = rank;
    } else if (coming->what != notice.what || coming->detail != notice.detail ||
               coming->type != notice.type) {
      raise("join", "ranks ", first, " and ", rank,
            " are at different places of their loops: ", "steps ", static_cast<int>(coming->what),
            " and ", static_cast<int>(notice.what));
    }
  }
  return coming;
}

}  // namespace mezzo::parallel
