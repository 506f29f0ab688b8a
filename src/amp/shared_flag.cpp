#include "amp/shared_flag.h"

#include <utility>

#include "scaling/finite_check.h"

namespace mezzo::amp::detail {

SharedFlag::SharedFlag(const Session& session, at::Tensor flag,
                       const std::vector<at::Tensor>& gradients,
                       const std::vector<at::Tensor>& values,
                       std::function<const at::Tensor&(std::size_t)> weight_of)
    : session_(session),
      flag_(std::move(flag)),
      count_(gradients.size()),
      weight_of_(std::move(weight_of)),
      group_(session.deciding_ranks()) {
  if (!group_) return;
  if (parallel::spread_by_reduction(gradients, *group_)) {
    averaged_ = true;
    before_the_average_ = parallel::nonfinite_ranks(gradients);
  }
  const auto place = [&]() -> std::optional<std::int64_t> {
    const std::size_t first = scaling::first_nonfinite(values);
    if (first == values.size()) return std::nullopt;
    return static_cast<std::int64_t>(first % count_);
  };
  agreement_.emplace(flag_, place, *group_);
}

Session::Verdict SharedFlag::wait() {
  if (!agreement_) return {flag_, {}};
  const parallel::AgreedFlag agreed = agreement_->wait();
  const auto name = [&](std::size_t i) {
    return i < count_ ? session_.name_of(weight_of_(i)) : std::string();
  };
  if (!averaged_) return {agreed.found_inf, OverflowRanks(agreed.origin, *group_, name)};
  return {agreed.found_inf,
          OverflowRanks::of_averages(std::move(before_the_average_), agreed.origin, *group_, name)};
}

}  // namespace mezzo::amp::detail
