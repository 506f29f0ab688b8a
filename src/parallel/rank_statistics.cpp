#include "parallel/rank_statistics.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

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
at::Tensor row_of(const at::Tensor& moments, double count, Backward backward) {
  const at::Tensor tail = at::tensor({count, static_cast<double>(backward)}, moments.options());
  return at::cat({moments.reshape({-1}), tail});
}

at::Tensor gather_rows(const at::Tensor& row, const detail::Group& group) {
  at::Tensor all = at::empty({group.size(), row.size(0)}, row.options());
  group.statistics().all_gather(all, row)->wait();
  return all;
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

RankStatistics exchange_moments(const at::Tensor& moments, double count, Backward backward,
                                const std::optional<ProcessGroup>& group) {
  if (!group) {
    return {moments[0], moments[1], count, backward == Backward::kInput, -1};
  }
  const std::int64_t channels = moments.size(1);
  announce_tensor(*group, Coming::kMoments, moments, channels);
  const at::Tensor gathered = gather_rows(row_of(moments, count, backward), group->internals());
  // All that the host needs to know; the moments stay where they are.
  const at::Tensor tails = gathered.narrow(1, 2 * channels, 2).contiguous().cpu();
  RankStatistics result;
  for (int r = 0; r < group->size(); ++r) {
    const double* row = tails.const_data_ptr<double>() + 2 * static_cast<std::int64_t>(r);
    result.count += row[0];
    const auto other = static_cast<Backward>(static_cast<std::int64_t>(row[1]));
    if (other == Backward::kInput) result.any_input = true;
    if (other == Backward::kNone && result.without_graph < 0) result.without_graph = r;
  }
  const at::Tensor merged = bridge::merge_moments(gathered, channels);
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
