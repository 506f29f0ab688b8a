// Findings of dry_run and shadow_run as JSON.
#pragma once

#include "report/event_json.h"

namespace mezzo::report {

Json advised_json(const PrecisionAdvised&);
Json compared_json(const PrecisionCompared&);

/// The inverse. Throws ConfigError if a field is missing or of another type.
PrecisionAdvised advised_from(const Fields&);
PrecisionCompared compared_from(const Fields&);

}  // namespace mezzo::report
