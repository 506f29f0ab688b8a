#include <algorithm>
#include <cmath>

#include "mezzo/insight_diagnosis.h"
#include "mezzo/report.h"
#include "report/page_parts.h"
#include "report/page_style.h"
#include "report/plot.h"
#include "report/precision_page.h"
#include "report/report_json.h"
#include "report/table.h"
#include "report/text.h"
#include "report/watched_page.h"

namespace mezzo::report {

namespace {

std::string legend(const std::vector<std::pair<std::string, int>>& entries) {
  std::string text = "<p class='legend'>";
  for (const auto& [name, color] : entries) {
    text += "<span><i class='s" + std::to_string(color) + "'></i>" + escaped(name) + "</span>";
  }
  return text + "</p>\n";
}

/// Exponential mean, so that noise does not hide how the levels compare.
std::vector<Point> smoothed(const std::vector<StepTaken>& steps) {
  constexpr double kKeep = 0.8;
  std::vector<Point> points;
  double mean = 0, weight = 0;
  for (const StepTaken& s : steps) {
    if (std::isfinite(s.loss)) {
      mean = kKeep * mean + (1 - kKeep) * s.loss;
      weight = kKeep * weight + (1 - kKeep);
    }
    const double y = std::isfinite(s.loss) ? mean / weight : std::nan("");
    points.push_back({static_cast<double>(s.step), y});
  }
  return points;
}

std::string loss_plot(const Report& report) {
  LinePlot plot{.label = "Training loss of each level over the steps",
                .x_name = "step",
                .tick = [](double y) { return fixed(y, 2); }};
  plot.series = per_run(report, [](const Run& run, int color) {
    Series series{run.name, color, {}, "faint"};
    for (const StepTaken& s : run.steps)
      series.points.push_back({static_cast<double>(s.step), s.loss});
    return series;
  });
  for (Series& series : per_run(report, [](const Run&run, int color) {
         return Series{run.name, color, smoothed(run.steps)};
       })) {
    plot.series.push_back(std::move(series));
  }
  return card("Loss", "Training loss; the strong lines are smoothed.", to_svg(plot));
}

std::string accuracy_plot(const Report& report) {
  LinePlot plot{.label = "Test accuracy of each level after each epoch",
                .x_name = "epoch",
                .tick = [](double y) { return fixed(100 * y, 1) + " %"; }};
  plot.series = per_run(report, [](const Run& run, int color) {
    Series series{run.name, color, {}, "dots"};
    for (const EpochEnded& e : run.epochs) {
      if (e.test_accuracy)
        series.points.push_back({static_cast<double>(e.epoch), *e.test_accuracy});
    }
    return series;
  });
  return card("Accuracy", "On the test images, after each epoch.", to_svg(plot));
}

std::string scale_plot(const Report& report) {
  LinePlot plot{.label = "Loss scale of each level over the steps",
                .x_name = "step",
                .tick = scale_text,
                .logarithmic = true,
                .steps = true};
  plot.series = per_run(report, [](const Run& run, int color) {
    Series series{run.name, color, {}};
    for (const StepTaken& s : run.steps)
      series.points.push_back({static_cast<double>(s.step), s.scale});
    return series;
  });
  return card("Loss scale",
              "In powers of two; a step down is an overflow, whose update was skipped.",
              to_svg(plot));
}

std::string time_plot(const Report& report) {
  const Run* reference = reference_run(report);
  BarPlot plot{.label = "Median time of a training step of each level", .bars = {}};
  plot.bars = per_run(report, [&](const Run& run, int color) {
    const double seconds = run.figures.seconds_per_step;
    std::string value = milliseconds(seconds);
    if (reference != nullptr)
      value += " (" + fixed(seconds / reference->figures.seconds_per_step, 2) + "x)";
    return Bar{run.name, {{seconds, color, run.name + ": " + value}}, value};
  });
  return card("Time per step", "Median; in brackets the ratio to O0, less is faster.",
              to_svg(plot));
}

std::string memory_plot(const Report& report) {
  BarPlot plot{.label = "Peak memory of each level", .bars = {}};
  plot.bars = per_run(report, [](const Run& run, int color) {
    const std::string value = bytes(run.figures.peak_memory_bytes);
    const auto height = static_cast<double>(run.figures.peak_memory_bytes);
    return Bar{run.name, {{height, color, run.name + ": " + value}}, value};
  });
  return card("Peak memory", "Above what the process held once its data was loaded.", to_svg(plot));
}

std::string state_plot(const Report& report) {
  BarPlot plot{.label = "Bytes of parameters, masters and optimizer state of each level",
               .bars = {}};
  plot.bars = per_run(report, [](const Run& run, int) {
    const RunEnded& f = run.figures;
    const auto part = [&](const char* name, std::int64_t count, int color) {
      return BarPart{static_cast<double>(count), color,
                     run.name + ", " + name + ": " + bytes(count)};
    };
    return Bar{run.name,
               {part("parameters", f.parameter_bytes, 0), part("masters", f.master_bytes, 1),
                part("optimizer state", f.optimizer_state_bytes, 2)},
               bytes(f.parameter_bytes + f.master_bytes + f.optimizer_state_bytes)};
  });
  return card("Weights and optimizer", "What stays in memory between steps.",
              legend({{"parameters", 0}, {"masters", 1}, {"optimizer state", 2}}) + to_svg(plot));
}

std::string table(const Report& report) {
  const auto rows = figure_rows(report);
  std::string html = "<div class='scroll'><table><thead><tr>";
  for (const std::string& cell : rows.front()) html += "<th>" + escaped(cell) + "</th>";
  html += "</tr></thead><tbody>";
  for (std::size_t r = 1; r < rows.size(); ++r) {
    html += "<tr>";
    for (const std::string& cell : rows[r]) html += "<td>" + escaped(cell) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table></div>\n";
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all.empty() ? "none" : all;
}

std::string diagnosis(const Report& report) {
  std::string items;
  for (const insight::Finding& finding : insight::diagnose(report)) {
    items += "<li><b>" + escaped(finding.where) + "</b> " + escaped(finding.kind) + ": " +
             escaped(finding.evidence) + ". " + escaped(finding.advice) + "</li>";
  }
  if (items.empty()) return "";
  return "<section class='card'><h2>Diagnosis</h2><ul>" + items + "</ul></section>\n";
}

std::string machine(const Machine& m) {
  std::string html = "<section class='card'><h2>Machine</h2><dl>";
  const auto entry = [&html](const std::string& name, const std::string& value) {
    html += "<dt>" + escaped(name) + "</dt><dd>" + escaped(value) + "</dd>";
  };
  entry("processor", m.processor);
  entry("instruction sets", joined(m.instruction_sets));
  entry("cores, threads", std::to_string(m.cores) + ", " + std::to_string(m.threads));
  entry("devices", joined(m.devices));
  for (const auto& [name, version] : m.versions) entry(name, version);
  for (const auto& [type, how] : m.compute) entry(type + " computes", how);
  return html + "</dl></section>\n";
}

std::string messages(const Report& report) {
  std::string items;
  for (const Run& run : report.runs) {
    for (const std::string& text : run.messages) {
      items += "<li><b>" + escaped(run.name) + "</b> " + escaped(text) + "</li>";
    }
  }
  if (items.empty()) return "";
  return "<section class='card'><h2>Messages</h2><ul>" + items + "</ul></section>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  std::string page =
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>"
      "<title>Mezzo: levels side by side</title><style>";
  page += kPageStyle;
  page += "</style></head><body><main>\n<h1>Levels side by side</h1>\n";
  const auto version = report.machine.versions.find("mezzo");
  page += "<p class='note'>Written by Mezzo" +
          (version == report.machine.versions.end() ? "" : ' ' + escaped(version->second)) +
          " on " + escaped(report.machine.processor) + ".</p>\n";
  page += table(report);
  page +=
      legend(per_run(report, [](const Run& run, int color) { return std::pair(run.name, color); }));
  page += "<div class='cards'>\n";
  const auto any = [&](auto has) {
    for (const Run& run : report.runs) {
      if (has(run)) return true;
    }
    return false;
  };
  page += diagnosis(report) + explained_card(report) + loss_plot(report);
  const auto is_tested = [](const EpochEnded& epoch) { return epoch.test_accuracy.has_value(); };
  if (any([&](const Run& run) { return std::ranges::any_of(run.epochs, is_tested); }))
    page += accuracy_plot(report);
  page += time_plot(report) + memory_plot(report);
  // A report.json has losses alone: only a log knows epochs and scales.
  if (any([](const Run& run) { return !run.epochs.empty(); })) page += scale_plot(report);
  page += state_plot(report) + watched_cards(report) + compared_cards(report) +
          advised_cards(report) + messages(report) + machine(report.machine);
  return page + "</div></main></body></html>\n";
}

}  // namespace mezzo::report
