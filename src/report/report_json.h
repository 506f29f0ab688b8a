// A whole report as JSON, in both directions.
#pragma once

#include "mezzo/report.h"
#include "report/event_json.h"

namespace mezzo::report {

/// The run whose time the others are compared with, or null.
const Run* reference_run(const Report&);

/// Reads the output of to_json(). Epochs, accuracies over time and scales are not part of it.
Report report_from_json(const Json&);

}  // namespace mezzo::report
