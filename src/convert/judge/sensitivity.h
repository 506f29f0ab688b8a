// Sensitivity: the error that single nodes add, as a conversion decides about them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "convert/decide/decide.h"
#include "convert/engine/local_errors.h"

namespace mezzo::convert {

Rounding rounding_of(const Graph&, const Decisions&, const ConvertPolicy&);

/// Says of decisions about `kept` nodes what low would cost there.
void tell_cost_of_low(const std::vector<LocalError>&, const std::set<std::string>& kept,
                      std::vector<Decision>& decisions);

}  // namespace mezzo::convert
