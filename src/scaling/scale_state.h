// How a loss scale moves: a pure function of what it was and whether a gradient overflowed.
//
// The rules are those of Apex's LossScaler with a floor and a ceiling that cannot be forgotten:
// halve after an overflow, double after enough clean passes in a row, and give up when the floor
// does not help.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mezzo::scaling {

struct ScaleRules {
  bool dynamic = true;  ///< false: the scale never moves, only the counter does
  double growth = 2.0;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;  ///< clean passes in a row before it grows
  double floor = 0x1p-14;
  double ceiling = 0x1p24;
  std::int64_t patience = 50;  ///< overflows in a row at the floor that are accepted; 0: any number
};

struct ScaleState {
  double scale = 65536.0;
  std::int64_t unskipped = 0;  ///< clean passes since the scale last moved or a pass overflowed
  std::int64_t stuck_at_floor = 0;  ///< overflows in a row with the scale at its floor
  friend constexpr bool operator==(const ScaleState&, const ScaleState&) = default;
};

/// The state after one pass.
constexpr ScaleState advance(ScaleState state, bool overflow, const ScaleRules& rules) noexcept {
  if (!rules.dynamic) {
    return {state.scale, overflow ? 0 : state.unskipped + 1, 0};
  }
  if (overflow) {
    const bool at_floor = state.scale <= rules.floor;
    return {std::max(rules.floor, state.scale * rules.backoff), 0,
            at_floor ? state.stuck_at_floor + 1 : 0};
  }
  if (state.unskipped + 1 < rules.growth_interval) return {state.scale, state.unskipped + 1, 0};
  return {std::min(rules.ceiling, state.scale * rules.growth), 0, 0};
}

/// Has the scale been at its floor, and overflowed, for as long as the rules allow?
constexpr bool exhausted(const ScaleState& state, const ScaleRules& rules) noexcept {
  return rules.dynamic && rules.patience > 0 && state.stuck_at_floor >= rules.patience;
}

/// The scale to begin with: the wish, held between floor and ceiling. Static scales stay as they
/// are.
constexpr double first_scale(double wish, const ScaleRules& rules) noexcept {
  return rules.dynamic ? std::clamp(wish, rules.floor, rules.ceiling) : wish;
}

/// The factor of tensors: the scale as float holds it, so that float and double tensors,
/// whose gradients may meet, get the same factor on every device.
constexpr double multiplier(double scale) noexcept {
  return static_cast<double>(static_cast<float>(scale));
}

}  // namespace mezzo::scaling
