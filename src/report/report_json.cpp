#include "report/report_json.h"

#include <algorithm>
#include <limits>

#include "core/raise.h"
#include "report/event_members.h"

namespace mezzo::report {

namespace {

Json level(const Run& run, const Run* reference) {
  Json object;
  object["level"] = run.name;
  each_member(run.figures, [&](const char* name, const auto& figure) {
    object[name] = figure;
    if (name != std::string_view("seconds_per_step")) return;
    object["ratio_to_O0"] =
        reference == nullptr
            ? Json()
            : Json(run.figures.seconds_per_step / reference->figures.seconds_per_step);
  });
  object["loss"] = Json::array();
  for (const StepTaken& step : run.steps) object["loss"].push_back(step.loss);
  return object;
}

Run run_from_json(const Json& object) {
  const Fields f(object);
  Run run;
  run.name = f.text("level");
  run.ended = true;
  run.figures = figures_from(f);
  const Json& losses = f.at("loss");
  if (!losses.is_array()) raise<ConfigError>("report", "field 'loss' must be an array of numbers");
  for (const Json& loss : losses) {
    if (!loss.is_number() && !loss.is_null()) {
      raise<ConfigError>("report", "field 'loss' must be an array of numbers");
    }
    // Missing fields become NaN.
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    run.steps.push_back({.step = static_cast<std::int64_t>(run.steps.size()) + 1,
                         .loss = loss.is_null() ? kUnknown : loss.get<double>(),
                         .accuracy = kUnknown,
                         .items_per_second = kUnknown,
                         .scale = kUnknown});
  }
  return run;
}

}  // namespace

const Run* reference_run(const Report& report) {
  const auto found = std::ranges::find_if(
      report.runs, [](const Run& run) { return run.ended && run.name == "O0"; });
  return found == report.runs.end() ? nullptr : &*found;
}

std::string to_json(const Report& report) {
  Json object;
  object["machine"] = to_json_object(report.machine);
  object["levels"] = Json::array();
  const Run* reference = reference_run(report);
  for (const Run& run : report.runs) object["levels"].push_back(level(run, reference));
  return to_text(object, 2) + "\n";
}

Report report_from_json(const Json& object) {
  const Fields f(object);
  Report report{.machine = machine_from_json(f.at("machine"))};
  if (!f.at("levels").is_array()) raise<ConfigError>("report", "field 'levels' must be an array");
  for (const Json& element : f.at("levels")) report.runs.push_back(run_from_json(element));
  return report;
}

}  // namespace mezzo::report
