// Watched steps and explained skips as JSON.
#pragma once

#include "report/event_json.h"

namespace mezzo::report {

Json watched_json(const StepWatched&);
Json explained_json(const SkipExplained&);

/// The inverse. Throws ConfigError if a field is missing or of another type.
StepWatched watched_from(const Fields&);
SkipExplained explained_from(const Fields&);

}  // namespace mezzo::report
