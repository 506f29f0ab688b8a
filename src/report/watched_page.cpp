#include "report/watched_page.h"

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "report/page_parts.h"
#include "report/plot.h"
#include "report/text.h"
#include "report/watched.h"

namespace mezzo::report {

namespace {

constexpr std::size_t kMostRows = 120;
constexpr double kSparkWidth = 150, kSparkHeight = 26;

bool any_watched(const Report& report) {
  return std::ranges::any_of(report.runs, [](const Run& run) { return !run.watched.empty(); });
}

std::string plot_of(const Report& report, const std::string& title, const std::string& note,
                    LinePlot plot, double WatchedSum::*value) {
  plot.series = per_run(report, [&](const Run& run, int color) {
    Series series{run.name, color, {}, run.watched.size() < 60 ? "dots" : ""};
    for (const StepWatched& step : run.watched)
      series.points.push_back({static_cast<double>(step.step), sum_of(step).*value});
    return series;
  });
  return card(title, note, to_svg(plot));
}

/// Bars of the exponents inside the type's range; what lies outside of its normal numbers is drawn
/// in another colour.
std::string spark_of(const Magnitudes& m) {
  const auto type = parse_dtype(m.type);
  if (!type || m.count == 0 || m.exponents.empty()) return "";
  const int normal = std::ilogb(row_of(*type).smallest_normal);
  const int top = std::ilogb(row_of(*type).largest);
  const int last = m.first_exponent + static_cast<int>(m.exponents.size()) - 1;
  // Wide types show the part of their range that is used.
  const bool narrow = top - normal < 64;
  const int from = std::min(m.first_exponent, narrow ? normal - 10 : m.first_exponent) - 1;
  const int to = std::max(last, narrow ? top : last) + 1;
  const double width = kSparkWidth / static_cast<double>(to - from + 1);
  const auto most = static_cast<double>(std::ranges::max(m.exponents));
  std::string svg = "<svg style='width:" + fixed(kSparkWidth, 0) + "px' viewBox='0 0 " +
                    fixed(kSparkWidth, 0) + ' ' + fixed(kSparkHeight, 0) +
                    "' role='img' aria-label='exponents from 2^" +
                    std::to_string(m.first_exponent) + " to 2^" + std::to_string(last) + "'>";
  for (const int bound : {normal, top + 1}) {
    if (bound <= from || bound > to) continue;
    const std::string x = fixed((bound - from) * width, 1);
    svg += "<line class='axis' x1='" + x + "' x2='" + x + "' y1='0' y2='" + fixed(kSparkHeight, 0) +
           "'/>";
  }
  for (std::size_t i = 0; i < m.exponents.size(); ++i) {
    if (m.exponents[i] == 0) continue;
    const int exponent = m.first_exponent + static_cast<int>(i);
    const double height = std::max(1.0, kSparkHeight * static_cast<double>(m.exponents[i]) / most);
    svg += "<rect class='bar " + std::string(exponent < normal || exponent > top ? "s1" : "s0") +
           "' x='" + fixed((exponent - from) * width, 1) + "' y='" +
           fixed(kSparkHeight - height, 1) + "' width='" + fixed(std::max(width - 0.5, 0.5), 1) +
           "' height='" + fixed(height, 1) + "'><title>2^" + std::to_string(exponent) + ": " +
           std::to_string(m.exponents[i]) + "</title></rect>";
  }
  return svg + "</svg>";
}

std::string cells_of(const Watched& row) {
  std::string html;
  const auto cell = [&html](const std::string& text) { html += "<td>" + text + "</td>"; };
  const bool flowed = row.gradients.count > 0;
  cell(short_number(row.weights.norm));
  cell(flowed ? short_number(row.gradients.norm) : "-");
  cell(flowed ? short_number(row.gradients.largest) : "-");
  cell(flowed ? percent(row.gradients.zeros) : "-");
  cell(flowed ? percent(row.gradients.subnormals) : "-");
  cell(flowed ? percent(row.gradients.saturated) : "-");
  cell(flowed ? spark_of(row.gradients) : "");
  cell(row.updates.count > 0 ? short_number(row.update_ratio) : "-");
  return html;
}

std::string table_of(const Run& run) {
  const StepWatched& step = run.watched.back();
  std::string html =
      "<div class='scroll'><table><thead><tr><th>parameter</th><th>weights, "
      "norm</th><th>gradients, "
      "norm</th><th>largest</th><th>zero</th><th>subnormal</th><th>saturated</th><th>exponents</th>"
      "<th>update ratio</th></tr></thead><tbody>";
  std::size_t shown = 0, parameters = 0;
  for (const Watched& row : step.rows) {
    if (row.parameter.empty()) continue;
    ++parameters;
    if (shown == kMostRows) continue;
    ++shown;
    html += "<tr><td>" + escaped(row.parameter) + "</td>" + cells_of(row) + "</tr>";
  }
  html += "</tbody></table></div>";
  if (shown < parameters)
    html += "<p class='note'>The first " + std::to_string(shown) + " of " +
            std::to_string(parameters) + " parameters; the log has all.</p>";
  return html;
}

}  // namespace

std::string watched_cards(const Report& report) {
  if (!any_watched(report)) return "";
  std::string html = plot_of(report, "Update ratio",
                             "Norm of a step's updates to that of the weights, in powers of two.",
                             {.label = "Effective update ratio of each run over the steps",
                              .x_name = "step",
                              .tick = [](double y) { return short_number(y); },
                              .logarithmic = true},
                             &WatchedSum::update_ratio);
  html += plot_of(report, "Gradients below the type",
                  "Share of the scaled gradients that are zero or below the type's normal numbers.",
                  {.label = "Share of gradients below the normal numbers of their type",
                   .x_name = "step",
                   .tick = [](double y) { return fixed(100 * y, 1) + " %"; }},
                  &WatchedSum::lost);
  for (const Run& run : report.runs) {
    if (run.watched.empty()) continue;
    const StepWatched& last = run.watched.back();
    const std::string type = last.rows.empty() ? "" : last.rows.front().gradients.type;
    html += wide_card("Numerics of " + run.name,
                      "Step " + std::to_string(last.step) + ", gradients times the loss scale of " +
                          scale_text(last.scale) + ", against the range of " + type +
                          "; lines mark its normal numbers.",
                      table_of(run));
  }
  return html;
}

std::string explained_card(const Report& report) {
  std::string items;
  for (const Run& run : report.runs) {
    const SkipClusters clusters = clusters_of(run);
    for (std::size_t i = 0; i < clusters.summaries.size(); ++i) {
      items +=
          "<li><b>" + escaped(run.name) + "</b> " + escaped(cluster_text(clusters, i)) + "</li>";
    }
  }
  if (items.empty()) return "";
  return "<section class='card'><h2>Skipped steps</h2><ul>" + items + "</ul></section>\n";
}

}  // namespace mezzo::report
