// Decision variables: what must have one type is one slot, and pins say which type and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::convert {

using Slot = std::int32_t;
inline constexpr Slot kNoSlot = -1;

enum class Label : std::uint8_t { kHigh, kLow };

/// The authority of a decision, weakest first.
enum class Level : std::uint8_t { kDefault, kPattern, kList, kNumeric, kName, kPlan, kValidity };

std::string name_of(Level);

struct Pin {
  Label label = Label::kHigh;
  Level level = Level::kDefault;
  std::string why;
  std::string_view by = {};  // the PinRule
};

/// Slots with union and pins.
class Slots {
 public:
  Slot add();
  std::size_t size() const { return parents_.size(); }
  Slot root(Slot) const;
  void unite(Slot, Slot);
  void pin(Slot, Label, Level, std::string why);
  /// Sets who pins from here on: the name of a PinRule, or nothing.
  void set_pinning(std::string_view rule) { pinning_ = rule; }

  /// The pin in force of every root: the strongest; of equal ones the high one. Two pins of users
  /// that contradict each other are a ConfigError that names both.
  void settle();
  /// After settle(): the pin in force, or null if nothing was asked and for kNoSlot.
  const Pin* pin_of(Slot) const;
  /// After settle(): the strongest pin for low that lost against the one in force, or null.
  const Pin* overruled(Slot) const;

 private:
  mutable std::vector<Slot> parents_;
  std::vector<std::pair<Slot, Pin>> pins_;
  std::string_view pinning_;
  std::vector<std::int32_t> best_, best_low_;
};

}  // namespace mezzo::convert
