// Building blocks of the page.
#pragma once

#include <string>
#include <vector>

#include "mezzo/report.h"
#include "report/plot.h"

namespace mezzo::report {

inline constexpr int kColors = 8;  // series colours in page_style.h; further runs start over

inline std::string card(const std::string& title, const std::string& note, const std::string& body,
                        const std::string& kind = "card") {
  return "<section class='" + kind + "'><h2>" + escaped(title) + "</h2><p class='note'>" +
         escaped(note) + "</p>" + body + "</section>\n";
}

/// Over all columns.
inline std::string wide_card(const std::string& title, const std::string& note,
                             const std::string& body) {
  return card(title, note, body, "card wide");
}

/// Calls make(run, colour) for each run and keeps what it returns.
template <class Make>
auto per_run(const Report& report, Make make) {
  std::vector<decltype(make(report.runs.front(), 0))> all;
  int color = 0;
  for (const Run& run : report.runs) all.push_back(make(run, color++ % kColors));
  return all;
}

}  // namespace mezzo::report
