#include "parallel/rank_statistics.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <utility>

#include "bridge/device.h"
#include "parallel/group.h"
#include "parallel/join.h"

namespace mezzo::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::string_view kInRankStatistics = "SyncBatchNorm";

void announce_tensor(const ProcessGroup& group, Coming what, const at::Tensor& tensor,
                     std::int64_t elements) {
  Notice notice;
  notice.what = what;
  notice.elements = elements;
  notice.type = static_cast<std::int64_t>(tensor.scalar_type());
  notice.on_cuda = tensor.is_cuda() ? 1 : 0;
  announce(group.internals(), notice, kInRankStatistics);
}

// A rank's row in the exchange: means, squared deviations, count, and what its backward will do.
// Filled, not copied from the host, which would wait for a device.
at::Tensor row_of(const at::Tensor& moments, double count, Backward backward) {
  const std::int64_t numbers = moments.numel();
  at::Tensor row = at::empty({numbers + 2}, moments.options());
  row.narrow(0, 0, numbers).copy_(moments.reshape({-1}));
  row.narrow(0, numbers, 1).fill_(count);
  row.narrow(0, numbers + 1, 1).fill_(static_cast<double>(backward));
  return row;
}

at::Tensor gather_rows(const at::Tensor& row, const detail::Group& group) {
  at::Tensor all = at::empty({group.size(), row.size(0)}, row.options());
  group.statistics().all_gather(all, row)->wait();
  return all;
}

// Chan's rule. Where there are no kernels: by operators of the device, since a merge by the host
// would wait.
at::Tensor merge(const at::Tensor& gathered, std::int64_t channels) {
  const at::Device device = gathered.device();
  if (device.is_cpu() || bridge::has_kernels(device, bridge::Family::kBatchNorms)) {
    return bridge::merge_moments(gathered, channels);
  }
  const at::Tensor means = gathered.narrow(1, 0, channels);
  const at::Tensor m2 = gathered.narrow(1, channels, channels);
  const at::Tensor counts = gathered.narrow(1, 2 * channels, 1);
  const at::Tensor mean = means.mul(counts).sum(0).div(counts.sum().clamp_min(1));
  const at::Tensor between = means.sub(mean).square().mul(counts);
  return at::stack({mean, m2.add(between).sum(0)});
}

struct GroupHolder final : torch::CustomClassHolder {
  explicit GroupHolder(ProcessGroup of) : group(std::move(of)) {}
  const ProcessGroup group;
};

class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& sums,
                            const ProcessGroup& group) {
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
    return sum_over_ranks(sums, group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto holder =
        c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule());
    return {SumOverRanks::apply(grads[0].contiguous(), holder->group), at::Tensor()};
  }
};

}  // namespace

at::Tensor ElementCount::divide(const at::Tensor& numbers, double less) const {
  if (there.defined()) return at::div(numbers, there.sub(less).clamp_min(1));
  return at::div(numbers, std::max(known - less, 1.0));
}

RankStatistics exchange_moments(const at::Tensor& moments, double count, Backward backward,
                                const std::optional<ProcessGroup>& group, NormName call) {
  if (!group) {
    check_elements(call, count);
    return {moments[0], moments[1], {count}, backward == Backward::kInput, nullptr};
  }
  detail::Group& internals = group->internals();
  const std::int64_t channels = moments.size(1);
  const bool on_device = !moments.is_cpu();
  if (on_device) internals.unheard_words().hear();
  announce_tensor(*group, Coming::kMoments, moments, channels);
  const at::Tensor gathered = gather_rows(row_of(moments, count, backward), internals);
  RankStatistics result;
  const auto words = std::make_shared<const RankWords>(
      std::move(call), gathered.narrow(1, 2 * channels, 2).contiguous());
  result.words = words;
  if (on_device) {
    internals.unheard_words().add_forward(words);
    result.count.there = gathered.select(1, 2 * channels).sum();
    result.any_input = backward != Backward::kNone;
  } else {
    words->check_forward();
    result.count.known = words->count();
    result.any_input = words->any_input();
  }
  const at::Tensor merged = merge(gathered, channels);
  result.mean = merged[0];
  result.m2 = merged[1];
  return result;
}

void give_no_moments(std::int64_t channels, const at::Device& device, const detail::Group& group) {
  const at::Tensor none = at::zeros({2, channels}, at::TensorOptions(device).dtype(at::kDouble));
  (void)gather_rows(row_of(none, 0, Backward::kAbsent), group);
}

at::Tensor sum_over_ranks(const at::Tensor& sums, const std::optional<ProcessGroup>& group) {
  if (!group) return sums;
  announce_tensor(*group, Coming::kSum, sums, sums.numel());
  at::Tensor total = sums.detach().clone(at::MemoryFormat::Contiguous);
  group->internals().statistics().all_reduce(total)->wait();
  return total;
}

at::Tensor differentiable_sum(const at::Tensor& sums, const std::optional<ProcessGroup>& group) {
  return group ? SumOverRanks::apply(sums, *group) : sums;
}

}  // namespace mezzo::parallel
