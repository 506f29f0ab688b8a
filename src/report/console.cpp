#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <sstream>

#include "mezzo/report.h"
#include "platform/machine.h"
#include "report/text.h"

namespace mezzo::report {

namespace {

constexpr int kBarCells = 24;
constexpr int kLinesPerEpoch = 4;  // plain output
constexpr std::chrono::milliseconds kRedraw{100};

/// "━━━━╸───": `share` of the cells, to half a cell. Each glyph is one column and three bytes.
std::string bar(double share) {
  const int halves = static_cast<int>(2 * kBarCells * std::clamp(share, 0.0, 1.0));
  std::string text;
  for (int cell = 0; cell < kBarCells; ++cell) {
    text += 2 * cell + 2 <= halves ? "━" : 2 * cell + 1 == halves ? "╸" : "─";
  }
  return text;
}

class Console final : public Sink {
 public:
  Console(std::ostream& out, ConsoleOptions options) : out_(out), options_(options) {}
  ~Console() override {
    if (open_line_) out_ << '\n' << std::flush;
  }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void write(const Event& event) override {
    std::visit([this](const auto& e) { show(e); }, event);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void show(const RunStarted& e) {
    run_ = e;
    began_ = Clock::now();
    drawn_ = {};
    quarter_ = 0;
  }

  void show(const StepTaken& e) {
    const std::int64_t in_epoch = e.step - (e.epoch - 1) * run_.steps_per_epoch;
    const double share = static_cast<double>(in_epoch) /
                         static_cast<double>(std::max<std::int64_t>(run_.steps_per_epoch, 1));
    if (options_.live) {
      const auto now = Clock::now();
      if (now - drawn_ < kRedraw && share < 1) return;
      drawn_ = now;
      draw(head(e.epoch), bar(share), figures(e) + "  " + remaining(e.step) + " left");
      return;
    }
    const int quarter = static_cast<int>(kLinesPerEpoch * share);
    if (quarter == quarter_ || share >= 1) return;
    quarter_ = quarter;
    line(head(e.epoch) + "  step " + std::to_string(in_epoch) + '/' +
         std::to_string(run_.steps_per_epoch) + "  " + figures(e));
  }

  void show(const EpochEnded& e) {
    quarter_ = 0;
    std::string text = head(e.epoch) + "  loss " + fixed(e.loss, 3);
    if (!std::isnan(e.accuracy)) text += "  train " + percent(e.accuracy);
    if (e.test_accuracy) text += "  test " + percent(*e.test_accuracy);
    line(text + "  " + fixed(e.seconds, 1) + " s");
  }

  void show(const RunEnded& e) {
    const std::string test =
        std::isnan(e.test_accuracy) ? "" : "test " + percent(e.test_accuracy) + ", ";
    line(run_.run + "  done: " + test + milliseconds(e.seconds_per_step) + " a step, " +
         std::to_string(e.skipped_steps) + " skipped, scale " + scale_text(e.final_scale));
  }

  void show(const Message& e) { line(run_.run.empty() ? e.text : run_.run + "  " + e.text); }

  void show(const StepWatched&) {}  // a table a parameter is for the other sinks

  void show(const SkipExplained& e) {
    line((run_.run.empty() ? "" : run_.run + "  ") + "step " + std::to_string(e.step) +
         " was skipped: " + e.summary);
  }

  void show(const PrecisionAdvised& e) { lines(e.text); }
  void show(const PrecisionCompared& e) { lines(e.text); }

  void lines(const std::string& text) {
    std::istringstream all(text);
    for (std::string each; std::getline(all, each);) line(each);
  }

  std::string head(std::int64_t epoch) const {
    return run_.run + "  epoch " + std::to_string(epoch) + '/' + std::to_string(run_.epochs);
  }

  std::string figures(const StepTaken& e) const {
    const std::string accuracy =
        std::isnan(e.accuracy) ? "" : "  acc " + fixed(100 * e.accuracy, 1) + " %";
    return "loss " + fixed(e.loss, 3) + accuracy + "  " + fixed(e.items_per_second, 0) + ' ' +
           run_.items + "/s  scale " + scale_text(e.scale) + "  skipped " +
           std::to_string(e.skipped_steps);
  }

  std::string remaining(std::int64_t step) const {
    const double total = static_cast<double>(run_.epochs * run_.steps_per_epoch);
    const double spent = std::chrono::duration<double>(Clock::now() - began_).count();
    return clock(spent / static_cast<double>(step) * (total - static_cast<double>(step)));
  }

  /// A terminal narrower than the line loses first the bar, then the line's end: a wrapped line
  /// could not be drawn over.
  void draw(const std::string& left, const std::string& cells, const std::string& right) {
    const auto columns = static_cast<std::size_t>(std::max(options_.columns - 1, 1));
    std::string text = left + "  " + right;
    if (text.size() + kBarCells + 2 <= columns) {
      text = left + "  " + cells + "  " + right;
    } else {
      text.resize(std::min(text.size(), columns));
    }
    out_ << '\r' << text << "\x1b[K" << std::flush;
    open_line_ = true;
  }

  void line(const std::string& text) {
    if (options_.live) out_ << "\r\x1b[K";
    out_ << text << '\n' << std::flush;
    open_line_ = false;
  }

  std::ostream& out_;
  ConsoleOptions options_;
  RunStarted run_;
  Clock::time_point began_{}, drawn_{};
  int quarter_ = 0;
  bool open_line_ = false;
};

}  // namespace

std::unique_ptr<Sink> console(std::ostream& out, ConsoleOptions options) {
  return std::make_unique<Console>(out, options);
}

std::unique_ptr<Sink> progress() {
  constexpr int kStandardError = 2;
  return console(std::cerr, {.live = platform::is_terminal(kStandardError),
                             .columns = platform::terminal_columns(kStandardError)});
}

}  // namespace mezzo::report
