// A progress bar, and the files of events that were asked for.
#pragma once

#include <mezzo/messages.h>
#include <mezzo/report.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "imagenet/train/meter.h"
#include "imagenet/train/settings.h"
#include "support/recorder.h"

namespace examples::imagenet {

/// Steps since the report before, of which the last is described.
struct LastSteps {
  std::int64_t epoch = 0, step = 0;  ///< from 1; the step in the epoch
  double loss = 0;
  std::int64_t images = 0, steps = 0;  ///< of all ranks
};

/// The first of several ranks reports, and the others are silent. Messages of the library become
/// events as long as this lives.
class Reporter {
 public:
  Reporter(const Settings& settings, mezzo::report::RunStarted run, bool speaks);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  /// Training time counts from now.
  void begin_epoch(const Counters& counters);

  /// Seconds that the training waited for a batch.
  void waited(double seconds) { waited_ += seconds; }

  /// The last step of a few: with the epoch's figures so far.
  void step(const LastSteps& last, const Figures& so_far, const Counters& counters);

  void end_epoch(std::int64_t epoch, const Figures& training, const Figures& test);
  void end_run(mezzo::report::RunEnded figures, const Counters& counters);

  /// A line for people.
  void tell(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  bool speaks_;
  std::unique_ptr<mezzo::report::Sink> sink_;
  std::int64_t steps_per_epoch_;
  std::int64_t steps_ = 0, weight_casts_ = 0, activation_casts_ = 0;
  Counters before_;
  double test_accuracy_ = 0, waited_ = 0, trained_ = 0;
  Clock::time_point began_, since_;
  std::vector<double> seconds_per_step_;
  mezzo::MessageSink messages_before_;
};

/// "top-1 71.23 %, top-5 90.12 %".
std::string shown(const Figures& figures);

}  // namespace examples::imagenet
