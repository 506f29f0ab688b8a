// Telling every cast, as verbosity 2 asks.
#pragma once

#include "casting/scope.h"

namespace mezzo::amp::detail {

/// Sends a message for each cast; lives as long as the process.
const casting::CastListener& cast_listener();

}  // namespace mezzo::amp::detail
