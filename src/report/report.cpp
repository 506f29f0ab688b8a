#include "mezzo/report.h"

#include <fstream>
#include <iterator>

#include "core/raise.h"
#include "platform/files.h"
#include "report/event_json.h"
#include "report/report_json.h"

namespace mezzo::report {

namespace {

Run& last_run(Report& report) {
  if (report.runs.empty()) raise<ConfigError>("report", "an event came before any RunStarted");
  return report.runs.back();
}

struct Adder {
  Report& report;
  void operator()(const RunStarted& e) const {
    report.machine = e.machine;
    report.runs.push_back({.name = e.run});
  }
  void operator()(const StepTaken& e) const { last_run(report).steps.push_back(e); }
  void operator()(const EpochEnded& e) const { last_run(report).epochs.push_back(e); }
  void operator()(const Message& e) const { last_run(report).messages.push_back(e.text); }
  void operator()(const StepWatched& e) const { last_run(report).watched.push_back(e); }
  void operator()(const SkipExplained& e) const { last_run(report).explained.push_back(e); }
  void operator()(const PrecisionAdvised& e) const { last_run(report).advised.push_back(e); }
  void operator()(const PrecisionCompared& e) const { last_run(report).compared.push_back(e); }
  void operator()(const RunEnded& e) const {
    last_run(report).figures = e;
    last_run(report).ended = true;
  }
};

Report from_lines(const std::string& content, const std::filesystem::path& file) {
  Report report;
  std::size_t start = 0;
  for (int line = 1; start < content.size(); ++line) {
    const std::size_t end = content.find('\n', start);
    const bool cut_off = end == std::string::npos;
    const std::string text = content.substr(start, cut_off ? end : end - start);
    start = cut_off ? content.size() : end + 1;
    if (text.empty()) continue;
    const Json object = Json::parse(text, nullptr, false);
    if (object.is_discarded()) {
      if (cut_off && !report.runs.empty()) break;  // the writer died in the middle of this line
      raise("report", "'", file.string(), "' line ", line, " is not JSON");
    }
    try {
      add(report, event_from_json(object));
    } catch (const Error& error) {
      raise("report", "'", file.string(), "' line ", line, ": ", error.what());
    }
  }
  return report;
}

}  // namespace

void add(Report& report, const Event& event) {
  std::visit(Adder{report}, event);
}

void replay(const Report& report, Sink& sink) {
  for (const Run& run : report.runs) {
    const auto epochs = static_cast<std::int64_t>(run.epochs.size());
    const std::int64_t steps = run.steps.empty() ? 0 : run.steps.back().step;
    sink.write(RunStarted{.run = run.name,
                          .epochs = epochs,
                          .steps_per_epoch = epochs == 0 ? steps : steps / epochs,
                          .machine = report.machine});
    for (const std::string& text : run.messages) sink.write(Message{text});
    auto step = run.steps.begin();
    for (const EpochEnded& epoch : run.epochs) {
      for (; step != run.steps.end() && step->epoch <= epoch.epoch; ++step) sink.write(*step);
      sink.write(epoch);
    }
    for (; step != run.steps.end(); ++step) sink.write(*step);
    for (const StepWatched& watched : run.watched) sink.write(watched);
    for (const SkipExplained& explained : run.explained) sink.write(explained);
    for (const PrecisionAdvised& advised : run.advised) sink.write(advised);
    for (const PrecisionCompared& compared : run.compared) sink.write(compared);
    if (run.ended) sink.write(run.figures);
  }
}

Report read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file))
    raise("report", "cannot read '", file.string(), "'");
  const std::string content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const Json whole = Json::parse(content, nullptr, false);
  if (whole.is_object() && whole.contains("levels")) {
    try {
      return report_from_json(whole);
    } catch (const Error& error) {
      raise("report", "'", file.string(), "': ", error.what());
    }
  }
  Report report = from_lines(content, file);
  if (report.runs.empty()) {
    raise("report", "'", file.string(), "' is neither a report nor a log of events");
  }
  return report;
}

void save(const Report& report, const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (ending != ".json" && ending != ".html") {
    raise<ConfigError>("report", "cannot tell the format of '", file.string(),
                       "'; expected an ending .json or .html");
  }
  const std::string content = ending == ".json" ? to_json(report) : to_html(report);
  platform::write_atomically(platform::behind_links(file),
                             [&](std::ostream& out) { out << content; });
}

}  // namespace mezzo::report
