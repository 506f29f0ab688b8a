#include "report/precision_page.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/page_parts.h"
#include "report/text.h"

namespace mezzo::report {

namespace {

constexpr std::size_t kMostLines = 40;

using Cells = std::vector<std::string>;

/// A table of texts, at most kMostLines, with a note on those that are left out.
std::string text_table(const Cells& head, const std::vector<Cells>& rows, const std::string& what) {
  std::string html = "<div class='scroll'><table><thead><tr>";
  for (const std::string& cell : head) html += "<th>" + escaped(cell) + "</th>";
  html += "</tr></thead><tbody>";
  const std::size_t shown = std::min(rows.size(), kMostLines);
  for (std::size_t i = 0; i < shown; ++i) {
    html += "<tr>";
    for (const std::string& cell : rows[i]) html += "<td>" + escaped(cell) + "</td>";
    html += "</tr>";
  }
  html += "</tbody></table></div>";
  if (shown < rows.size())
    html += "<p class='note'>The first " + std::to_string(shown) + " of " +
            std::to_string(rows.size()) + ' ' + what + "; the log has all.</p>";
  return html;
}

std::string error_cell(double error) {
  return std::isinf(error) ? "overflow" : short_number(error);
}

std::string microseconds(double seconds) {
  return short_number(seconds * 1e6) + " us";
}

std::string place_of(const std::string& name, const std::string& module) {
  return module.empty() ? name : name + " (" + module + ')';
}

/// The operators that stay float, the costs, and the policy files to copy.
std::string body_of(const PrecisionAdvised& advised) {
  std::string html;
  std::vector<Cells> rows;
  for (const AdvisedOperator& each : advised.operators)
    rows.push_back({each.name, each.type, each.cast_class, each.reason});
  if (rows.empty()) {
    html += "<p>The default lists suit these steps.</p>";
  } else {
    html += text_table({"operator", "type", "class", "why"}, rows, "operators");
  }
  rows.clear();
  for (const AdvisedCost& each : advised.costs) {
    rows.push_back({each.cast_class, each.type, std::to_string(each.calls),
                    milliseconds(each.float_seconds), milliseconds(each.low_seconds),
                    bytes(each.float_bytes), bytes(each.low_bytes)});
  }
  if (!rows.empty()) {
    html += "<p class='note'>Measured on this machine, a step.</p>" +
            text_table({"class", "type", "calls", "in float", "by the default lists",
                        "results in float", "by the default lists"},
                       rows, "classes");
  }
  if (!advised.odd_sizes.empty()) {
    html += "<ul>";
    for (const std::string& each : advised.odd_sizes) html += "<li>" + escaped(each) + "</li>";
    html += "</ul>";
  }
  for (const auto& [type, file] : advised.policies) {
    html += "<details><summary>policy file for " + escaped(type) + "</summary><pre>" +
            escaped(file) + "</pre></details>";
  }
  return html;
}

std::string body_of(const PrecisionCompared& compared) {
  std::vector<Cells> rows;
  for (const ComparedOperator& each : compared.operators) {
    rows.push_back({each.name, each.module, each.backward ? "backward" : "forward", each.type,
                    error_cell(each.own), error_cell(each.accumulated)});
  }
  std::string html = text_table({"operator", "module", "pass", "type", "own error", "accumulated"},
                                rows, "operator calls");
  rows.clear();
  for (const ComparedCast& each : compared.casts) {
    rows.push_back({each.parameter.empty() ? "input " + std::to_string(each.input) : each.parameter,
                    place_of(each.name, each.module), each.type, error_cell(each.error),
                    microseconds(each.seconds)});
  }
  if (rows.empty()) return html;
  return html +
         "<p class='note'>Casts: the error of the operator's result by each alone, and the "
         "time that it takes once.</p>" +
         text_table({"cast", "for", "type", "error", "time"}, rows, "casts");
}

}  // namespace

std::string advised_cards(const Report& report) {
  std::string html;
  for (const Run& run : report.runs) {
    if (run.advised.empty()) continue;
    const PrecisionAdvised& last = run.advised.back();
    html += wide_card("Advice of a dry run: " + run.name,
                      "What should stay in float, by " + std::to_string(last.steps) +
                          (last.steps == 1 ? " step" : " steps") + " in float.",
                      body_of(last));
  }
  return html;
}

std::string compared_cards(const Report& report) {
  std::string html;
  for (const Run& run : report.runs) {
    if (run.compared.empty()) continue;
    const PrecisionCompared& last = run.compared.back();
    html += wide_card("Precision lost: " + run.name,
                      last.level + " against float with a loss scale of " + scale_text(last.scale) +
                          ", worst first; errors are relative to the largest magnitude.",
                      body_of(last));
  }
  return html;
}

}  // namespace mezzo::report
