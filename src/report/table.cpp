#include <algorithm>
#include <array>

#include "mezzo/report.h"
#include "report/report_json.h"
#include "report/table.h"
#include "report/text.h"

namespace mezzo::report {

namespace {

std::string ratio(const Run& run, const Run* reference) {
  if (reference == nullptr) return "-";
  return fixed(run.figures.seconds_per_step / reference->figures.seconds_per_step, 2) + "x";
}

}  // namespace

std::vector<std::vector<std::string>> figure_rows(const Report& report) {
  std::vector<std::vector<std::string>> rows{
      {"level", "test accuracy", "time/step", "to O0", "peak memory", "parameters", "masters",
       "optimizer state", "weight casts/step", "other casts/step", "skipped", "scale"}};
  const Run* reference = reference_run(report);
  for (const Run& run : report.runs) {
    if (!run.ended) {
      rows.push_back({run.name, "did not end"});
      rows.back().resize(rows.front().size(), "-");
      continue;
    }
    const RunEnded& f = run.figures;
    rows.push_back({run.name, percent(f.test_accuracy), milliseconds(f.seconds_per_step),
                    ratio(run, reference), bytes(f.peak_memory_bytes), bytes(f.parameter_bytes),
                    bytes(f.master_bytes), bytes(f.optimizer_state_bytes),
                    fixed(f.weight_casts_per_step, 1), fixed(f.activation_casts_per_step, 1),
                    std::to_string(f.skipped_steps), scale_text(f.final_scale)});
  }
  return rows;
}

// Two lines of heading keep the columns narrow enough for 100 characters.
std::string to_table(const Report& report) {
  std::vector<std::vector<std::string>> rows = figure_rows(report);
  const std::vector<std::string> first{"", "test",   "time",      "ratio", "peak",  "param-",
                                       "", "optim.", "casts per", "step:", "skip-", "final"};
  const std::vector<std::string> second{"level",   "accuracy", "per step", "to O0",
                                        "memory",  "eters",    "masters",  "state",
                                        "weights", "others",   "ped",      "scale"};
  rows.front() = second;
  rows.insert(rows.begin(), first);
  std::vector<std::size_t> widths(first.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      const std::string padding(widths[i] - rows[r][i].size(), ' ');
      line += i == 0 ? rows[r][i] + padding : "  " + padding + rows[r][i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    if (r == 1) {
      std::size_t total = 2 * (widths.size() - 1);
      for (const std::size_t width : widths) total += width;
      text += std::string(total, '-') + '\n';
    }
  }
  return text;
}

}  // namespace mezzo::report
