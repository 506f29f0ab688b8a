// The parts of the page that show what dry_run and shadow_run found.
#pragma once

#include <string>

#include "mezzo/report.h"

namespace mezzo::report {

/// The last advice of each run: what to keep in float and why, what it costs, and the policy files;
/// empty if there is none.
std::string advised_cards(const Report&);

/// The last comparison of each run: the operators and casts that lose most; empty if there is
/// none.
std::string compared_cards(const Report&);

}  // namespace mezzo::report
