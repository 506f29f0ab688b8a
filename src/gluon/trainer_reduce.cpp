// Gradients summed over replicas and ranks.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "gluon/trainer_state.h"
#include "mezzo/autocast.h"
#include "mezzo/process_group.h"
#include "parallel/flat.h"

namespace mezzo::gluon::detail {
namespace {

at::Tensor& gradient_to_sum(const at::Tensor& parameter) {
  at::Tensor& grad = parameter.mutable_grad();
  if (!grad.defined()) grad = at::zeros_like(parameter, at::MemoryFormat::Preserve);
  return grad;
}

/// Which of these have a gradient on any rank.
std::vector<std::size_t> wanted_by_any_rank(const std::vector<std::size_t>& own, std::size_t all,
                                            const at::Tensor& like) {
  std::vector<float> flags(all, 0.0F);
  for (const std::size_t i : own) flags[i] = 1.0F;
  const at::Tensor shared = at::tensor(flags).to(like.device());
  parallel::world().all_reduce(shared, parallel::ReduceOp::kMax);
  const at::Tensor here = shared.to(at::kCPU);
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < all; ++i) {
    if (here.const_data_ptr<float>()[i] != 0.0F) wanted.push_back(i);
  }
  return wanted;
}

}  // namespace

void TrainerState::allreduce() {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  share_weights_with_ranks();
  std::vector<std::size_t> which = chosen();
  const bool has_ranks = parallel::is_initialized() && parallel::world_size() > 1;
  if (has_ranks) which = wanted_by_any_rank(which, replicas.front().tensors.size(), weight(0));
  if (has_ranks || replicas.size() > 1) {
    sum_replicas(which);
    if (has_ranks) sum_ranks(which);
    give_sums(which);
  }
  reduced_ = std::move(which);
  is_reduced_ = true;
}

void TrainerState::sum_replicas(const std::vector<std::size_t>& which) {
  for (const std::size_t i : which) {
    at::Tensor& sum = gradient_to_sum(weight(i));
    // A stale gradient is what an earlier step left: it is no part of this sum.
    if (!fresh_->is_fresh(0, i)) sum.zero_();
    for (std::size_t r = 1; r < replicas.size(); ++r) {
      if (fresh_->is_fresh(r, i)) sum.add_(replicas[r].tensors[i].grad().to(sum.device()));
    }
  }
}

void TrainerState::sum_ranks(const std::vector<std::size_t>& which) {
  std::vector<at::Tensor> gradients;
  for (const std::size_t i : which) gradients.push_back(weight(i).grad());
  const parallel::ProcessGroup group = parallel::world();
  for (const std::vector<std::size_t>& same : parallel::by_type(gradients)) {
    const at::Tensor flat = parallel::flatten_chosen(gradients, same);
    group.all_reduce(flat, parallel::ReduceOp::kSum);
    parallel::unflatten_chosen(flat, gradients, same);
  }
}

void TrainerState::give_sums(const std::vector<std::size_t>& which) {
  for (std::size_t r = 1; r < replicas.size(); ++r) {
    for (const std::size_t i : which) {
      gradient_to_sum(replicas[r].tensors[i]).copy_(weight(i).grad(), /*non_blocking=*/true);
    }
  }
}

}  // namespace mezzo::gluon::detail
