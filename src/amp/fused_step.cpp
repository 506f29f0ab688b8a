#include "amp/fused_step.h"

#include "amp/optimizer_slots.h"
#include "casting/weights.h"

namespace mezzo::amp::detail {

/// While it lives, the slots are lent.
class FusedStep::Lending {
 public:
  Lending(FusedStep& step, std::vector<Slot>& slots, bool gradients, bool casts) : step_(step) {
    step_.slots_ = &slots;
    step_.next_ = 0;
    step_.lends_gradients_ = gradients;
    step_.lends_casts_ = casts;
    step_.loans_.begin(casts ? slots.size() : 0);
    step_.not_lent_.clear();
    for (Slot& slot : slots) {
      if (slot.has_master() && slot.entry->is_split() && !bridge::can_split(slot.weight))
        give_memory(*slot.entry);
    }
  }
  ~Lending() { step_.slots_ = nullptr; }
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

 private:
  FusedStep& step_;
};

std::shared_ptr<FusedStep> FusedStep::of(torch::optim::Optimizer& optimizer) {
  auto* fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer);
  return fused == nullptr ? nullptr : std::make_shared<FusedStep>(*fused);
}

void FusedStep::attach(const std::shared_ptr<FusedStep>& step) {
  optim::set_step_context(step->optimizer_, step);
}

void FusedStep::detach() {
  optim::set_step_context(optimizer_, nullptr);
}

void FusedStep::step(std::vector<Slot>& slots, bool casts,
                     const torch::optim::Optimizer::LossClosure& closure) {
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    closure();
  }
  const Lending lending(*this, slots, /*gradients=*/false, casts);
  optimizer_.step();
}

void FusedStep::step_unless(std::vector<Slot>& slots, bool casts, const at::Tensor& found_inf) {
  const Lending lending(*this, slots, /*gradients=*/false, casts);
  optimizer_.step_unless(found_inf);
}

void FusedStep::step_scaled(std::vector<Slot>& slots, bool casts, at::Tensor& found_inf,
                            const at::Tensor& inverse,
                            const std::function<void(at::Tensor&)>& agree) {
  const Lending lending(*this, slots, /*gradients=*/true, casts);
  optim::step_checked(optimizer_, found_inf, inverse, agree);
}

Slot* FusedStep::slot_of(const at::Tensor& parameter) {
  if (slots_ == nullptr) return nullptr;
  // Parameters come in the order of the slots.
  for (std::size_t tried = 0; tried < slots_->size(); ++tried) {
    Slot& slot = (*slots_)[next_];
    next_ = next_ + 1 == slots_->size() ? 0 : next_ + 1;
    if (slot.master.is_same(parameter)) return &slot;
  }
  return nullptr;
}

optim::LowCopy FusedStep::low_copy(const at::Tensor& parameter) {
  const Slot* const slot = slot_of(parameter);
  if (slot == nullptr) return {};
  optim::LowCopy lent;
  const at::Tensor& grad = lends_gradients_ ? slot->weight.grad() : slot->master.grad();
  // Without a gradient nothing moves.
  if (!grad.defined()) return {};
  lent.source_grad = &grad;
  if (slot->has_master()) {
    lent.copy = &slot->weight;
    if (slot->entry->is_split()) lent.rest = &slot->entry->rest;
  } else if (lends_casts_) {
    if (const casting::CastLoan* const loan = loans_.lend(slot->weight)) {
      lent.copy = &loan->copy;
      lent.rounded_to = loan->rounded_to;
      return lent;
    }
  }
  if (lends_casts_) not_lent_.push_back(slot->weight);
  return lent;
}

void FusedStep::stepped(bool applied) {
  if (!applied || slots_ == nullptr) return;
  for (Slot& slot : *slots_) {
    if (slot.has_master()) WeightTable::agree(*slot.entry);
  }
}

void FusedStep::keep_casts() {
  loans_.take_back();
  casting::refresh_casts(not_lent_);
  not_lent_.clear();
}

}  // namespace mezzo::amp::detail
