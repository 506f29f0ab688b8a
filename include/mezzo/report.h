// Writes down what happened in training: on a terminal, as JSON lines, for TensorBoard, and as one
// page with plots that compares several runs.
//
//   namespace report = mezzo::report;
//   auto log = report::tee(report::progress(), report::json_lines("run.jsonl"));
//   log->write(report::RunStarted{.run = "O1", .epochs = 3, .steps_per_epoch = 469});
//   log->write(report::StepTaken{.epoch = 1, .step = 10, .loss = 1.2});
//   ...
//   report::save(report::read("run.jsonl"), "run.html");
//
// Nothing here needs LibTorch. Threads: a sink belongs to one thread at a time.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "mezzo/events.h"
#include "mezzo/export.h"

namespace mezzo::report {

/// Takes the events of one run after another, in order. Derive to send them elsewhere.
class MEZZO_API Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink();
  /// Takes the next event. Throws what its destination throws.
  virtual void write(const Event&) = 0;
};

/// How console() writes.
struct ConsoleOptions {
  bool live = false;  ///< redraw one line with a bar (for terminals) instead of writing plain lines
  int columns = 80;   ///< the terminal's width; a live line never gets longer
};

/// Text for people. `out` must outlive the sink. Live, a step redraws the bar at most ten times a
/// second; plain, each quarter of an epoch writes a line.
MEZZO_API std::unique_ptr<Sink> console(std::ostream& out, ConsoleOptions options = {});

/// console() on standard error: live where that is a terminal.
MEZZO_API std::unique_ptr<Sink> progress();

/// One JSON object a line, flushed line by line, so that a run that dies leaves what it did. An
/// existing file is replaced. Throws Error if the file cannot be written.
MEZZO_API std::unique_ptr<Sink> json_lines(const std::filesystem::path& file);

/// Event files for TensorBoard, one folder per run below `folder`, which is made if needed; a
/// second run of one name gets "-2" behind it. No file of another run or process is written over.
/// Throws Error if it cannot be written.
MEZZO_API std::unique_ptr<Sink> tensorboard(const std::filesystem::path& folder);

/// Writes the page of to_html() when a run begins, and when an epoch or a run ends, each time
/// whole. Throws Error if it cannot.
MEZZO_API std::unique_ptr<Sink> html(const std::filesystem::path& file);

/// Hands every event to all of them, in order. If some throw, the others have the event, and the
/// first one's exception is thrown.
MEZZO_API std::unique_ptr<Sink> tee(std::vector<std::unique_ptr<Sink>> sinks);

/// tee(console(...), json_lines(...)): the same, for as many as are named.
template <class... Sinks>
std::unique_ptr<Sink> tee(std::unique_ptr<Sink> first, Sinks... rest) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(first));
  (sinks.push_back(std::move(rest)), ...);
  return tee(std::move(sinks));
}

/// The sums over one run's events.
struct Run {
  std::string name = {};                         ///< RunStarted's
  std::vector<StepTaken> steps = {};             ///< in order
  std::vector<EpochEnded> epochs = {};           ///< in order
  std::vector<std::string> messages = {};        ///< in order
  RunEnded figures = {};                         ///< RunEnded's, or all zero until then
  bool ended = false;                            ///< was there a RunEnded?
  std::vector<StepWatched> watched = {};         ///< in order
  std::vector<SkipExplained> explained = {};     ///< in order
  std::vector<PrecisionAdvised> advised = {};    ///< in order
  std::vector<PrecisionCompared> compared = {};  ///< in order
  bool operator==(const Run&) const = default;
};

/// Several runs side by side, in the order in which they ran.
struct Report {
  Machine machine = {};        ///< of the run that began last
  std::vector<Run> runs = {};  ///< in order
  bool operator==(const Report&) const = default;
};

/// Adds an event: a RunStarted begins a run, every other event belongs to the last one begun.
/// Throws ConfigError if none was begun.
MEZZO_API void add(Report&, const Event&);

/// Hands a sink the events that a report was made of, in order, steps before the end of their
/// epoch. A report from a report.json has no epochs, scales, watched steps or insight.
MEZZO_API void replay(const Report&, Sink&);

/// Reads what json_lines() or save() wrote. A last line that was cut off by a crash is left out.
/// Throws Error, with the line, on anything else that is not such a file.
MEZZO_API Report read(const std::filesystem::path& file);

/// The runs' figures side by side, for a terminal: one row a run.
MEZZO_API std::string to_table(const Report&);

/// The figures as JSON: `machine` and `levels`, as docs/report.md describes. `ratio_to_O0` is the
/// time per step over that of the run named "O0", null if there is none.
MEZZO_API std::string to_json(const Report&);

/// One page without any outside resource: table, loss curves, accuracy, scale history, bars of time
/// and memory, and what insight found, in light and dark.
MEZZO_API std::string to_html(const Report&);

/// Writes to_json() or to_html(), by the file's ending (.json, .html), beside the target and then
/// over it; a symbolic link to it stays. Throws ConfigError for another ending, Error if it
/// cannot be written.
MEZZO_API void save(const Report&, const std::filesystem::path& file);

/// Processor, instruction sets, cores, and the versions of Mezzo and its compiler. Threads, devices
/// and LibTorch's version are the caller's to add.
MEZZO_API Machine this_machine();

}  // namespace mezzo::report
