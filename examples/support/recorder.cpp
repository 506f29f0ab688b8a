#include "support/recorder.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <mezzo/amp.h>
#include <mezzo/cast_counts.h>
#include <mezzo/error.h>
#include <mezzo/hardware.h>
#include <mezzo/process_group.h>
#include <torch/cuda.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>

namespace examples {

namespace {

constexpr std::int64_t kStepsPerEvent = 10;

double seconds_between(std::chrono::steady_clock::time_point a,
                       std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

/// Only the first rank of a training reports.
class Silence final : public mezzo::report::Sink {
 public:
  void write(const mezzo::report::Event&) override {}
};

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

Recorder::Recorder(const std::string& log, mezzo::report::RunStarted run,
                   std::function<Counters()> counters)
    : run_(std::move(run)), counters_(std::move(counters)) {
  namespace parallel = mezzo::parallel;
  if (parallel::is_initialized()) ranks_ = parallel::world_size();
  const bool reports = ranks_ == 1 || parallel::rank() == 0;
  sink_ = reports ? mezzo::report::progress() : std::make_unique<Silence>();
  if (!log.empty() && reports)
    sink_ = mezzo::report::tee(std::move(sink_), mezzo::report::json_lines(log));
  sink_->write(run_);
  messages_before_ = mezzo::set_message_sink(
      [this](const std::string& text) { sink_->write(mezzo::report::Message{text}); });
}

Recorder::~Recorder() {
  mezzo::set_message_sink(std::move(messages_before_));
}

void Recorder::begin_epoch() {
  ++epoch_;
  items_in_epoch_ = losses_ = 0;
  loss_sum_ = 0;
  correct_ = at::Tensor();
  epoch_before_ = counters_();
  epoch_began_ = since_ = Clock::now();
}

void Recorder::step(const at::Tensor& loss, const at::Tensor& outputs, const at::Tensor& labels) {
  const at::Tensor correct = outputs.detach().argmax(1).eq(labels).sum();
  correct_ = correct_.defined() ? correct_ + correct : correct;
  ++step_;
  ++steps_since_;
  items_since_ += labels.size(0) * ranks_;
  items_in_epoch_ += labels.size(0);
  const std::int64_t in_epoch = step_ - (epoch_ - 1) * run_.steps_per_epoch;
  if (in_epoch % kStepsPerEvent != 0 && in_epoch != run_.steps_per_epoch) return;

  const double loss_value = loss.item<double>();
  const double accuracy = correct_.item<double>() / static_cast<double>(items_in_epoch_);
  const auto now = Clock::now();
  const double seconds = seconds_between(since_, now);
  seconds_per_step_.push_back(seconds / static_cast<double>(steps_since_));
  const Counters counters = counters_();
  sink_->write(
      mezzo::report::StepTaken{.epoch = epoch_,
                               .step = step_,
                               .loss = loss_value,
                               .accuracy = accuracy,
                               .items_per_second = static_cast<double>(items_since_) / seconds,
                               .scale = counters.scale,
                               .skipped_steps = counters.skipped_steps});
  if (in_epoch == run_.steps_per_epoch) {
    weight_casts_ += counters.weight_casts - epoch_before_.weight_casts;
    activation_casts_ += counters.activation_casts - epoch_before_.activation_casts;
  }
  loss_sum_ += loss_value;
  ++losses_;
  steps_since_ = items_since_ = 0;
  since_ = Clock::now();
}

void Recorder::end_epoch(double test_accuracy) {
  test_accuracy_ = test_accuracy;
  sink_->write(mezzo::report::EpochEnded{
      .epoch = epoch_,
      .loss = loss_sum_ / static_cast<double>(std::max<std::int64_t>(losses_, 1)),
      .accuracy = correct_.item<double>() / static_cast<double>(items_in_epoch_),
      .test_accuracy = test_accuracy,
      .seconds = seconds_between(epoch_began_, since_)});
}

void Recorder::end(mezzo::report::RunEnded figures) {
  const Counters counters = counters_();
  const auto steps = static_cast<double>(std::max<std::int64_t>(step_, 1));
  figures.test_accuracy = test_accuracy_;
  figures.seconds_per_step = median(seconds_per_step_);
  figures.weight_casts_per_step = static_cast<double>(weight_casts_) / steps;
  figures.activation_casts_per_step = static_cast<double>(activation_casts_) / steps;
  figures.skipped_steps = counters.skipped_steps;
  figures.final_scale = counters.scale;
  sink_->write(figures);
}

mezzo::report::Machine machine_of(at::Device device) {
  mezzo::report::Machine machine = mezzo::report::this_machine();
  machine.threads = at::get_num_threads();
  machine.devices = {device.str()};
  machine.versions["libtorch"] = TORCH_VERSION;
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) {
    const mezzo::ComputeChoice choice = mezzo::compute_choice(low);
    const bool native = choice.mode == mezzo::ComputeMode::kNative;
    machine.compute[low == at::kHalf ? "float16" : "bfloat16"] =
        (native ? "native: " : "emulated: ") + choice.why;
  }
  return machine;
}

at::Device device_of(const std::string& name) {
  at::Device device(at::kCPU);
  try {
    device = at::Device(name);
  } catch (const c10::Error& error) {
    throw mezzo::ConfigError("--device: " + std::string(error.what_without_backtrace()));
  }
  // A program that links LibTorch's CPU part alone gets the other part when it is asked for.
  if (device.is_cuda() && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw mezzo::Error("device '" + name + "' is not there: " + dlerror());
  }
  const bool there =
      device.is_cpu() || (device.is_cuda() && device.index() < torch::cuda::device_count());
  if (!there) {
    throw mezzo::Error("device '" + name + "' is not there: this process sees the CPU and " +
                       std::to_string(torch::cuda::device_count()) + " CUDA devices");
  }
  return device;
}

Counters counters_of(const mezzo::amp::Optimizer& optimizer) {
  const mezzo::CastCounts casts = mezzo::cast_counts();
  return {optimizer.loss_scale(), optimizer.skipped_steps(), casts.weight_casts,
          casts.activation_casts};
}

std::int64_t master_bytes(const mezzo::amp::Optimizer& optimizer,
                          const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> masters = mezzo::amp::master_params(optimizer);
  std::erase_if(masters, [&](const at::Tensor& master) {
    return std::ranges::any_of(parameters, [&](const at::Tensor& p) { return p.is_same(master); });
  });
  return bytes_of(masters);
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) sum += static_cast<std::int64_t>(tensor.nbytes());
  }
  return sum;
}

}  // namespace examples
