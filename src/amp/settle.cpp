#include "amp/settle.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>

#include "amp/gradients.h"
#include "amp/optimizer_state.h"
#include "amp/shared_flag.h"
#include "scaling/finite_check.h"

namespace mezzo::amp::detail {
namespace {

/// The terms of a parameter's gradient.
struct GradientSum {
  Slot* slot;
  at::Tensor settled;  // unscaled earlier
  at::Tensor delayed;  // left scaled by an earlier block
  at::Tensor fresh;    // of this backward pass
};

/// Gradients that carry the same scale.
struct Scaled {
  std::vector<at::Tensor> gradients;
  at::Tensor inverse;
};

/// Takes a parameter's gradients from where autograd and the scope's entrance left them, in the
/// type that the optimizer steps, free to be changed in place.
GradientSum take_gradients(Slot& slot, bool stash_is_scaled, Widening& widening) {
  GradientSum sum{&slot, {}, {}, widening.add(slot.weight.grad(), slot.master)};
  at::Tensor stash = widening.add(std::exchange(slot.stash, at::Tensor()), slot.master);
  if (!slot.in_bucket) (stash_is_scaled ? sum.delayed : sum.settled) = stash;
  if (slot.has_master()) sum.settled = slot.master.grad();
  return sum;
}

/// A weight whose gradient its master takes over.
struct ReadSlot {
  Slot* slot;
  bool owns_gradient;  // no other optimizer has dropped it
};

/// Drops gradients of weights once they are read: one that lies in a bucket is cleared in place.
void drop_read(const std::vector<ReadSlot>& read) {
  for (const ReadSlot& one : read) {
    if (one.owns_gradient) drop_gradient(one.slot->weight);
    one.slot->cleared.note(one.slot->weight.grad());
  }
}

/// A gradient that carries a graph is divided outside of it: a change in place would break its
/// double backward. Gives back what is left to be looked at.
at::Tensor divide_graph(at::Tensor& gradient, const at::Tensor& inverse) {
  if (!gradient.requires_grad()) return gradient;
  at::Tensor scaled = gradient.detach().clone();
  gradient = gradient.mul(inverse.to(gradient.device()));
  return scaled;
}

void unscale(const std::vector<Scaled>& lists, bool checks, at::Tensor& found_inf) {
  for (const Scaled& list : lists) {
    if (checks) {
      scaling::unscale_and_check(list.gradients, list.inverse, found_inf);
    } else {
      scaling::unscale(list.gradients, list.inverse);
    }
  }
}

/// Where nothing carries a scale, nothing is written.
void check(const std::vector<Scaled>& lists, at::Tensor& found_inf) {
  for (const Scaled& list : lists) scaling::check_finite(list.gradients, found_inf);
}

/// Each gradient of a backward pass, and behind them those that an earlier block left scaled.
std::vector<at::Tensor> values_of(const std::vector<GradientSum>& sums) {
  std::vector<at::Tensor> values;
  values.reserve(2 * sums.size());
  for (const GradientSum& sum : sums) values.push_back(sum.fresh);
  for (const GradientSum& sum : sums) values.push_back(sum.delayed);
  return values;
}

/// The optimizers whose gradients one block left scaled.
std::vector<OptimizerState*> block_of(const OptimizerState& one, const Session& session) {
  std::vector<OptimizerState*> owners;
  for (const auto& optimizer : session.optimizers()) {
    if (optimizer->scope().may_settle() &&
        optimizer->scope().still_scaled()->block == one.scope().still_scaled()->block) {
      owners.push_back(optimizer.get());
    }
  }
  return owners;
}

/// Do some of these carry another scale than one? Those of a checkpoint may where the level's own
/// scale is one.
bool carries_scale(const std::vector<OptimizerState*>& optimizers,
                   const scaling::LossScaler& scaler) {
  return !scaler.is_one() || std::ranges::any_of(optimizers, [](const OptimizerState* optimizer) {
    const auto& scaled = optimizer->scope().still_scaled();
    return scaled &&
           (scaled->scale.there.defined() || scaling::multiplier(scaled->scale.number) != 1);
  });
}

}  // namespace

void settle(const std::vector<OptimizerState*>& optimizers, Session& session, int loss_id,
            bool delay_overflow_check) {
  scaling::LossScaler& scaler = session.scaler(loss_id, "scale_loss");
  const bool checks = session.plan().check_finite;
  const scaling::ScaleValue before = scaler.value();

  std::vector<at::Tensor> raw;
  std::vector<GradientSum> sums;
  std::vector<Scaled> lists{{{}, scaler.inverse()}};
  std::unordered_set<const c10::TensorImpl*> taken;
  Widening widening;
  std::vector<ReadSlot> read;
  for (OptimizerState* optimizer : optimizers) {
    const auto& still_scaled = optimizer->scope().still_scaled();
    if (still_scaled) lists.push_back({{}, still_scaled->inverse});
    for (Slot& slot : optimizer->slots().all()) {
      // A weight of several optimizers has one gradient, which was set aside once.
      if (optimizers.size() > 1 && !taken.insert(slot.weight.unsafeGetTensorImpl()).second) {
        slot.stash.reset();  // of a bucket, each has a copy
        if (slot.has_master()) read.push_back({&slot, /*owns_gradient=*/false});
        continue;
      }
      raw.push_back(slot.weight.grad());
      if (slot.has_master()) read.push_back({&slot, /*owns_gradient=*/true});
      GradientSum& sum =
          sums.emplace_back(take_gradients(slot, still_scaled.has_value(), widening));
      if (sum.fresh.defined()) {
        lists.front().gradients.push_back(divide_graph(sum.fresh, lists.front().inverse));
      }
      if (sum.delayed.defined()) lists.back().gradients.push_back(sum.delayed);
    }
  }

  widening.run();
  drop_read(read);

  Session::Verdict verdict{at::zeros({}, lists.front().inverse.options().dtype(at::kFloat)), {}};
  if (carries_scale(optimizers, scaler)) {
    unscale(lists, checks, verdict.found_inf);
  } else if (checks) {
    check(lists, verdict.found_inf);
  }
  std::optional<SharedFlag> shared;
  if (checks && !delay_overflow_check && session.deciding_ranks()) {
    const std::vector<at::Tensor> values = values_of(sums);
    shared.emplace(session, verdict.found_inf, raw, values,
                   [&](std::size_t i) -> const at::Tensor& { return sums[i].slot->weight; });
  }
  for (const GradientSum& sum : sums) {
    put_gradient(sum.slot->master, sum_of(sum_of(sum.settled, sum.delayed), sum.fresh));
  }
  if (shared) verdict = shared->wait();

  if (!delay_overflow_check && (checks || !scaler.is_one())) scaler.update(verdict.found_inf);
  for (OptimizerState* optimizer : optimizers) {
    OptimizerScope& scope = optimizer->scope();
    scope.leave_settled(!lists.front().gradients.empty());
    const bool is_judged = checks && !delay_overflow_check;
    is_judged ? scope.judge(loss_id, verdict, before) : scope.leave_unjudged(loss_id, before);
  }
}

void settle_left_scaled(const std::vector<OptimizerState*>& owners, Session& session) {
  const StillScaled scaled = *owners.front()->scope().still_scaled();
  for (OptimizerState* owner : owners) owner->gradients().set_aside();
  settle(owners, session, scaled.loss_id, scaled.delay_overflow_check);
}

void settle_shared(const std::vector<OptimizerState*>& optimizers, Session& session) {
  const auto is_here = [&](const OptimizerState* optimizer) {
    return std::ranges::find(optimizers, optimizer) != optimizers.end();
  };
  const auto joins = [&](OptimizerState& left, OptimizerState& entering) {
    if (&left == &entering || !left.slots().shares_weights(entering.slots())) return true;
    const auto& other = entering.scope().still_scaled();
    return is_here(&left) && other && other->block == left.scope().still_scaled()->block;
  };
  for (const auto& left : session.optimizers()) {
    if (!left->scope().may_settle()) continue;
    const bool all_join = std::ranges::all_of(
        optimizers, [&](OptimizerState* entering) { return joins(*left, *entering); });
    if (all_join) continue;
    const std::vector<OptimizerState*> owners = block_of(*left, session);
    for (const OptimizerState* owner : owners) owner->scope().check_left_scaled("scale_loss");
    settle_left_scaled(owners, session);
  }
}

void settle_other_losses(const std::vector<OptimizerState*>& optimizers, Session& session,
                         int loss_id) {
  std::map<std::int64_t, std::vector<OptimizerState*>> blocks;
  for (OptimizerState* optimizer : optimizers) {
    if (optimizer->scope().is_scaled_by_another(loss_id))
      blocks[optimizer->scope().still_scaled()->block].push_back(optimizer);
  }
  for (const auto& [block, here] : blocks) {
    std::vector<std::vector<at::Tensor>> fresh;
    for (OptimizerState* owner : here) fresh.push_back(owner->gradients().take_fresh());
    const StillScaled scaled = *here.front()->scope().still_scaled();
    std::vector<OptimizerState*> owners = here;
    for (OptimizerState* owner : block_of(*here.front(), session)) {  // not inside this scope
      owner->gradients().set_aside();
      owners.push_back(owner);
    }
    settle(owners, session, scaled.loss_id, scaled.delay_overflow_check);
    for (OptimizerState* owner : here) owner->gradients().set_aside();
    for (std::size_t i = 0; i < here.size(); ++i) here[i]->gradients().give_fresh_back(fresh[i]);
  }
}

}  // namespace mezzo::amp::detail
