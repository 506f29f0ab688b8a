// raise<ConfigError>("initialize", "unknown opt level '", level, "'; expected one of ", names): one
// way to throw.
#pragma once

#include <sstream>
#include <string_view>

#include "mezzo/error.h"

namespace mezzo {

/// Throws E with the message "[where] parts...". The parts are anything that a stream takes.
template <typename E = Error, typename... Parts>
[[noreturn]] void raise(std::string_view where, const Parts&... parts) {
  std::ostringstream text;
  text << '[' << where << "] ";
  (text << ... << parts);
  throw E(text.str());
}

}  // namespace mezzo
