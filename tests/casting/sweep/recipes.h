// Arguments for overloads whose parameters depend on each other too much to be drawn.
#pragma once

#include <string_view>
#include <vector>

#include "casting/sweep/drawing.h"

namespace mezzo::casting::sweep {

/// Empty for overloads that are drawn.
std::vector<Stack> recipes_for(std::string_view overload);

}  // namespace mezzo::casting::sweep
