#include "convert/decide/slots.h"

#include <utility>

#include "core/raise.h"

namespace mezzo::convert {

std::string name_of(Level level) {
  switch (level) {
    case Level::kDefault:
      return "default";
    case Level::kPattern:
      return "pattern";
    case Level::kList:
      return "list";
    case Level::kNumeric:
      return "range";
    case Level::kName:
      return "name";
    case Level::kValidity:
      return "schema";
    case Level::kPlan:
      return "plan";
  }
  return "default";
}

Slot Slots::add() {
  parents_.push_back(static_cast<Slot>(parents_.size()));
  return parents_.back();
}

Slot Slots::root(Slot slot) const {
  while (parents_[static_cast<std::size_t>(slot)] != slot) {
    Slot& parent = parents_[static_cast<std::size_t>(slot)];
    parent = parents_[static_cast<std::size_t>(parent)];
    slot = parent;
  }
  return slot;
}

void Slots::unite(Slot a, Slot b) {
  if (a == kNoSlot || b == kNoSlot) return;
  a = root(a);
  b = root(b);
  if (a < b) std::swap(a, b);
  parents_[static_cast<std::size_t>(a)] = b;
}

void Slots::pin(Slot slot, Label label, Level level, std::string why) {
  if (slot != kNoSlot) pins_.emplace_back(slot, Pin{label, level, std::move(why), pinning_});
}

void Slots::settle() {
  best_.assign(parents_.size(), -1);
  best_low_.assign(parents_.size(), -1);
  for (std::size_t i = 0; i < pins_.size(); ++i) {
    const Pin& pin = pins_[i].second;
    const auto at = static_cast<std::size_t>(root(pins_[i].first));
    const auto stronger = [&](std::int32_t other) {
      if (other < 0) return true;
      const Pin& held = pins_[static_cast<std::size_t>(other)].second;
      if (pin.level != held.level) return pin.level > held.level;
      return pin.label == Label::kHigh && held.label == Label::kLow;
    };
    const std::int32_t before = best_[at];
    if (before >= 0) {
      const Pin& held = pins_[static_cast<std::size_t>(before)].second;
      const bool by_user = pin.level == Level::kName || pin.level == Level::kList;
      if (by_user && held.level == pin.level && held.label != pin.label) {
        raise<ConfigError>("convert", "contradiction: ", held.why, ", and ", pin.why);
      }
    }
    if (stronger(before)) best_[at] = static_cast<std::int32_t>(i);
    if (pin.label == Label::kLow && stronger(best_low_[at])) {
      best_low_[at] = static_cast<std::int32_t>(i);
    }
  }
}

const Pin* Slots::pin_of(Slot slot) const {
  if (slot == kNoSlot) return nullptr;
  const std::int32_t best = best_[static_cast<std::size_t>(root(slot))];
  return best < 0 ? nullptr : &pins_[static_cast<std::size_t>(best)].second;
}

const Pin* Slots::overruled(Slot slot) const {
  const Pin* pin = pin_of(slot);
  if (pin == nullptr || pin->label == Label::kLow) return nullptr;
  const std::int32_t low = best_low_[static_cast<std::size_t>(root(slot))];
  if (low < 0) return nullptr;
  return &pins_[static_cast<std::size_t>(low)].second;
}

}  // namespace mezzo::convert
