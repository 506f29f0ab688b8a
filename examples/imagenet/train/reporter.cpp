#include "imagenet/train/reporter.h"

#include <algorithm>
#include <cstdio>

namespace examples::imagenet {
namespace {

namespace report = mezzo::report;

std::unique_ptr<report::Sink> sink_of(const Settings& s) {
  std::vector<std::unique_ptr<report::Sink>> sinks;
  sinks.push_back(report::progress());
  if (!s.log.empty()) sinks.push_back(report::json_lines(s.log));
  if (!s.report.empty()) sinks.push_back(report::html(s.report));
  if (!s.tensorboard.empty()) sinks.push_back(report::tensorboard(s.tensorboard));
  return report::tee(std::move(sinks));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string percent(double share) {
  constexpr std::size_t kRoom = 32;
  std::string text(kRoom, '\0');
  text.resize(static_cast<std::size_t>(
      std::snprintf(text.data(), kRoom, "%.2f %%", 100 * share)));  // NOLINT(*-magic-numbers)
  return text;
}

}  // namespace

std::string shown(const Figures& figures) {
  return "top-1 " + percent(figures.top1) + ", top-5 " + percent(figures.top5);
}

Reporter::Reporter(const Settings& settings, report::RunStarted run, bool speaks)
    : speaks_(speaks), steps_per_epoch_(run.steps_per_epoch) {
  if (speaks_) {
    sink_ = sink_of(settings);
    sink_->write(run);
  }
  messages_before_ = mezzo::set_message_sink([this](const std::string& text) { tell(text); });
}

Reporter::~Reporter() {
  mezzo::set_message_sink(std::move(messages_before_));
}

void Reporter::begin_epoch(const Counters& counters) {
  began_ = since_ = Clock::now();
  waited_ = 0;
  before_ = counters;
}

void Reporter::step(const LastSteps& last, const Figures& so_far, const Counters& counters) {
  const double seconds = seconds_since(since_);
  since_ = Clock::now();
  trained_ = seconds_since(began_);
  seconds_per_step_.push_back(seconds / static_cast<double>(last.steps));
  steps_ += last.steps;
  weight_casts_ += counters.weight_casts - before_.weight_casts;
  activation_casts_ += counters.activation_casts - before_.activation_casts;
  before_ = counters;
  if (!speaks_) return;
  sink_->write(report::StepTaken{.epoch = last.epoch,
                                 .step = (last.epoch - 1) * steps_per_epoch_ + last.step,
                                 .loss = last.loss,
                                 .accuracy = so_far.top1,
                                 .items_per_second = static_cast<double>(last.images) / seconds,
                                 .scale = counters.scale,
                                 .skipped_steps = counters.skipped_steps});
}

void Reporter::end_epoch(std::int64_t epoch, const Figures& training, const Figures& test) {
  test_accuracy_ = test.top1;
  if (!speaks_) return;
  sink_->write(report::EpochEnded{.epoch = epoch,
                                  .loss = training.loss,
                                  .accuracy = training.top1,
                                  .test_accuracy = test.top1,
                                  .seconds = trained_});
  tell("epoch " + std::to_string(epoch) + ": test loss " + std::to_string(test.loss) + ", " +
       shown(test) + "; training " + shown(training) + "; waited for data " +
       percent(trained_ > 0 ? waited_ / trained_ : 0));
}

void Reporter::end_run(report::RunEnded figures, const Counters& counters) {
  if (!speaks_) return;
  const auto steps = static_cast<double>(std::max<std::int64_t>(steps_, 1));
  figures.test_accuracy = test_accuracy_;
  figures.seconds_per_step = median(seconds_per_step_);
  figures.weight_casts_per_step = static_cast<double>(weight_casts_) / steps;
  figures.activation_casts_per_step = static_cast<double>(activation_casts_) / steps;
  figures.skipped_steps = counters.skipped_steps;
  figures.final_scale = counters.scale;
  sink_->write(figures);
}

void Reporter::tell(const std::string& text) {
  if (speaks_) sink_->write(report::Message{text});
}

}  // namespace examples::imagenet
