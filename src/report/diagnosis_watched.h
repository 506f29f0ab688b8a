// Findings from watched steps and explained skips.
#pragma once

#include <optional>

#include "mezzo/insight_diagnosis.h"
#include "mezzo/report.h"

namespace mezzo::insight {

/// Gradients below the numbers of their type. `in_float`: a float run of the same network; null:
/// none.
std::optional<Finding> vanishing(const report::Run& run, const report::Run* in_float);

/// Parameters that no gradient reaches, in float neither.
std::optional<Finding> dead(const report::Run& run, const report::Run* in_float);

/// Skipped steps by their explanations.
std::optional<Finding> skip_causes(const report::Run& run);

}  // namespace mezzo::insight
