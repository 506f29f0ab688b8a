// The rules by which the scales of apex.fp16_utils move.
#pragma once

#include <cmath>
#include <string_view>

#include "core/raise.h"
#include "scaling/scale_state.h"

namespace mezzo::fp16_utils {

inline double checked_scale(std::string_view where, double scale) {
  const auto as_float = static_cast<float>(scale);
  if (!(as_float > 0) || !std::isfinite(as_float)) {
    raise<ConfigError>(where, "the scale is ", scale,
                       "; expected a positive number that float can hold");
  }
  return scale;
}

/// A floor of 1, no ceiling but float's range. Throws ConfigError for a factor not above 1 and a
/// window below 1.
inline scaling::ScaleRules scale_rules(std::string_view where, double factor, std::int64_t window) {
  if (!(factor > 1) || !std::isfinite(factor))
    raise<ConfigError>(where, "scale_factor is ", factor, "; expected more than 1");
  if (window < 1) raise<ConfigError>(where, "scale_window is ", window, "; expected 1 or more");
  return {.dynamic = true,
          .growth = factor,
          .backoff = 1 / factor,
          .growth_interval = window,
          .floor = 1,
          .ceiling = 0x1p127};
}

/// A dynamic scale can begin only where its rules leave it.
inline double checked_first_scale(std::string_view where, double scale,
                                  const scaling::ScaleRules& rules) {
  if (!(scale >= rules.floor && scale <= rules.ceiling)) {
    raise<ConfigError>(where, "init_scale is ", scale, "; expected ", rules.floor, " to ",
                       rules.ceiling, ", between which a dynamic scale moves");
  }
  return scale;
}

}  // namespace mezzo::fp16_utils
