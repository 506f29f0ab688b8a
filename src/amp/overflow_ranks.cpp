#include "amp/overflow_ranks.h"

#include <ATen/ops/maximum.h>

#include "parallel/agreement.h"
#include "scaling/to_device.h"

namespace mezzo::amp::detail {
namespace {

std::string on_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? " on rank " : " on ranks ") + text;
}

}  // namespace

OverflowRanks::OverflowRanks(std::vector<int> before_the_average)
    : ranks_(std::move(before_the_average)) {}

OverflowRanks::OverflowRanks(const at::Tensor& origin, bool averaged,
                             const parallel::ProcessGroup& group,
                             const std::function<std::string(std::size_t)>& name_of)
    : averaged_(averaged) {
  if (!origin.device().is_cpu()) {
    origin_ = origin;
    group_ = group;
    return;
  }
  const auto found = parallel::origin_of(origin, group);
  if (found) text_ = describe_origin(origin, found->rank);
  if (!text_.empty() && found->place) {
    parameter_ = name_of(static_cast<std::size_t>(*found->place));
  }
}

OverflowRanks OverflowRanks::of_averages(std::optional<std::vector<int>> before_the_average,
                                         const at::Tensor& origin,
                                         const parallel::ProcessGroup& group,
                                         const std::function<std::string(std::size_t)>& name_of) {
  if (before_the_average && !before_the_average->empty())
    return OverflowRanks(std::move(*before_the_average));
  OverflowRanks after(origin, /*averaged=*/true, group, name_of);
  if (before_the_average && after.describe().empty())
    return OverflowRanks(std::move(*before_the_average));
  return after;
}

std::string OverflowRanks::describe_origin(const at::Tensor& origin, int rank) const {
  if (!averaged_) return on_ranks({rank});
  // Averages that are the same everywhere do not show whose gradient it was.
  if (parallel::is_on_all(origin)) return {};
  return on_ranks({rank}) + " after the average, and finite on other ranks";
}

void OverflowRanks::add(const OverflowRanks& later) {
  if (origin_.defined() && later.origin_.defined()) {
    origin_ = at::maximum(origin_, scaling::to_device(later.origin_, origin_.device()));
  } else if (!known()) {
    *this = later;
  }
}

std::string OverflowRanks::describe() const {
  if (ranks_) {
    return ranks_->empty() ? " in the average over the ranks, though each rank's own is"
                           : on_ranks(*ranks_);
  }
  if (!origin_.defined()) return text_;
  const auto found = parallel::origin_of(origin_, *group_);
  return found ? describe_origin(origin_, found->rank) : std::string();
}

}  // namespace mezzo::amp::detail
