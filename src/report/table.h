// The figures of a report as text, cell by cell: the terminal's table and the page's show the same.
#pragma once

#include "mezzo/report.h"

namespace mezzo::report {

/// First the headings, then one row a run, all of one length.
std::vector<std::vector<std::string>> figure_rows(const Report&);

}  // namespace mezzo::report
