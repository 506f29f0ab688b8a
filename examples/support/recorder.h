// Watches a training loop: times its steps and hands a sink what happened every few of them, so
// that a device is not made to wait for its results at each.
#pragma once

#include <ATen/core/Tensor.h>
#include <mezzo/messages.h>
#include <mezzo/report.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace torch::optim {
class Optimizer;
}
namespace mezzo::amp {
class Optimizer;
}

namespace examples {

/// The program's counters of its loss scale and casts, asked only when a few steps are reported.
struct Counters {
  double scale = 1;
  std::int64_t skipped_steps = 0, weight_casts = 0, activation_casts = 0;
};

/// The middle value, the upper one of two; 0 of nothing.
double median(std::vector<double> values);

class Recorder {
 public:
  /// Shows progress on standard error and, with a `log`, writes every event to that file as JSON
  /// lines; what the library has to say becomes an event too, as long as the recorder lives. Only
  /// the first of several ranks does so; the others are silent. `run` says what is planned;
  /// `counters` is called now and then until end().
  Recorder(const std::string& log, mezzo::report::RunStarted run,
           std::function<Counters()> counters);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Where the events go: for watches of numerics.
  mezzo::report::Sink& sink() { return *sink_; }

  /// A training epoch begins, from now time counts.
  void begin_epoch();
  /// After each step: its loss, the model's outputs [N, kinds] and what they should have been.
  void step(const at::Tensor& loss, const at::Tensor& outputs, const at::Tensor& labels);
  void end_epoch(double test_accuracy);
  /// Completes the figures that the recorder knows and ends the run.
  void end(mezzo::report::RunEnded figures);

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<mezzo::report::Sink> sink_;
  mezzo::report::RunStarted run_;
  std::function<Counters()> counters_;
  std::int64_t epoch_ = 0, step_ = 0;
  int ranks_ = 1;
  std::int64_t items_in_epoch_ = 0, items_since_ = 0, steps_since_ = 0;
  at::Tensor correct_;  // on the device
  double loss_sum_ = 0, test_accuracy_ = 0;
  std::int64_t losses_ = 0;
  Clock::time_point epoch_began_, since_;
  std::vector<double> seconds_per_step_;
  Counters epoch_before_;  // casts are counted in training alone
  std::int64_t weight_casts_ = 0, activation_casts_ = 0;
  mezzo::MessageSink messages_before_;
};

/// Where this program runs, `device` and the threads that compute included.
mezzo::report::Machine machine_of(at::Device device);

/// The device of that name, ready to be used. Throws mezzo::ConfigError for a name that LibTorch
/// does not know and mezzo::Error for a device that is not there.
at::Device device_of(const std::string& name);

/// The counters of the optimizer's first loss, and all casts so far.
Counters counters_of(const mezzo::amp::Optimizer& optimizer);

/// Bytes of the masters that the optimizer steps in place of these parameters.
std::int64_t master_bytes(const mezzo::amp::Optimizer& optimizer,
                          const std::vector<at::Tensor>& parameters);

/// Bytes of all elements of these tensors.
std::int64_t bytes_of(const std::vector<at::Tensor>& tensors);

}  // namespace examples
