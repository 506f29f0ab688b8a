// The parts of the page that show watched steps and explained skips.
#pragma once

#include <string>

#include "mezzo/report.h"

namespace mezzo::report {

/// Plots over the steps, and a table of the last watched step of each run; empty if no step was
/// watched.
std::string watched_cards(const Report&);

/// Skips by their explanations; empty if none was explained.
std::string explained_card(const Report&);

}  // namespace mezzo::report
