// Options checked at the border: out of range is an error that names the range.
#pragma once

#include "core/raise.h"
#include "mezzo/optim.h"

namespace mezzo::optim {

/// A group's options as this optimizer's own type; another optimizer's options are a ConfigError.
template <typename T>
const T& options_as(const char* optimizer, const Options& options) {
  const T* own = dynamic_cast<const T*>(&options);
  if (own == nullptr) {
    raise<ConfigError>(optimizer, "a group has the options of another optimizer; expected ",
                       optimizer, "Options");
  }
  return *own;
}

inline void check_not_negative(const char* optimizer, const char* option, double value) {
  if (!(value >= 0) || value - value != 0) {
    raise<ConfigError>(optimizer, option, " is ", value,
                       "; expected a finite number of at least 0");
  }
}

inline void check_beta(const char* optimizer, const char* option, double value) {
  if (!(value >= 0 && value < 1)) {
    raise<ConfigError>(optimizer, option, " is ", value, "; expected at least 0 and below 1");
  }
}

}  // namespace mezzo::optim
