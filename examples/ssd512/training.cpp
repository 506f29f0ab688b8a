#include "ssd512/training.h"

#include <mezzo/cast_counts.h>
#include <mezzo/gluon.h>
#include <mezzo/messages.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include "ssd512/loader.h"
#include "ssd512/multibox_loss.h"
#include "ssd512/mxnet_weights.h"
#include "ssd512/network.h"
#include "support/process.h"
#include "support/recorder.h"

namespace examples {

namespace {

namespace gluon = mezzo::gluon;
namespace report = mezzo::report;
using Clock = std::chrono::steady_clock;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kLines = 4;  // of the log, as the tutorial has

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<at::Tensor> times(const std::vector<at::Tensor>& losses, std::int64_t factor) {
  std::vector<at::Tensor> results;
  results.reserve(losses.size());
  for (const at::Tensor& loss : losses) results.push_back(loss.detach() * factor);
  return results;
}

/// Sums over the samples of all devices, which the host reads when the epoch is over.
at::Tensor sums_of(const MultiBoxLosses& losses) {
  std::vector<at::Tensor> sums;
  for (const auto* kind : {&losses.sum, &losses.cls, &losses.box}) {
    at::Tensor sum = (*kind)[0].detach().sum();
    for (std::size_t i = 1; i < kind->size(); ++i) sum = sum + (*kind)[i].detach().sum();
    sums.push_back(sum);
  }
  return torch::stack(sums);
}

std::int64_t momentum_bytes(const Ssd& net) {
  std::int64_t bytes = 0;
  for (const at::Tensor& weight : net->parameters())
    bytes += weight.requires_grad() ? static_cast<std::int64_t>(weight.nbytes()) : 0;
  return bytes;
}

/// The run's progress on standard error, its log on standard output, its events and its figures.
class Journal {
 public:
  Journal(const TrainingSettings& settings, const std::string& dtype, std::int64_t batch_size,
          at::Device device, report::Report& all)
      : device_(device),
        batch_size_(batch_size),
        iterations_(settings.iterations),
        results_{.dtype = dtype},
        all_(all),
        messages_before_(mezzo::set_message_sink(
            [this](const std::string& text) { log("INFO:root:" + text); })) {
    write(report::RunStarted{.run = dtype,
                             .epochs = 1,
                             .steps_per_epoch = iterations_,
                             .batch_size = batch_size,
                             .items = "samples",
                             .machine = machine_of(device)});
  }
  ~Journal() { mezzo::set_message_sink(messages_before_); }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// After the step of iteration `i`, from 0.
  void iteration(std::int64_t i, const MultiBoxLosses& losses, const gluon::Trainer& trainer) {
    ce_metric_.update({}, times(losses.cls, batch_size_));
    smoothl1_metric_.update({}, times(losses.box, batch_size_));
    losses_.push_back(sums_of(losses));
    results_.skipped += trainer.last_step_skipped() ? 1 : 0;
    results_.loss_scale = trainer.loss_scale();
    const bool is_logged = (i + 1) % std::max<std::int64_t>(iterations_ / kLines, 1) == 0;
    if (!is_logged && !device_.is_cpu()) return;  // a GPU is not waited for

    const double loss = losses_.back()[0].item<double>();
    LogLine line{i, 0, ce_metric_.get().second, smoothl1_metric_.get().second};
    line.samples_per_second = static_cast<double>((i + 1 - logged_) * batch_size_) /
                              seconds_between(since_, Clock::now());
    write(report::StepTaken{.epoch = 1,
                            .step = i + 1,
                            .loss = loss,
                            .accuracy = kUnknown,
                            .items_per_second = line.samples_per_second,
                            .scale = results_.loss_scale,
                            .skipped_steps = results_.skipped});
    if (!is_logged) return;
    log(line.text());
    results_.lines.push_back(line);
    logged_ = i + 1;
    since_ = Clock::now();
  }

  /// After the epoch.
  RunResults end(const Ssd& net) {
    for (const at::Tensor& losses : losses_) {
      const at::Tensor host = losses.to(at::kCPU, at::kDouble);
      results_.losses.push_back(
          {host[0].item<double>(), host[1].item<double>(), host[2].item<double>()});
    }
    const double seconds = seconds_between(begun_, Clock::now());
    const mezzo::CastCounts casts = mezzo::cast_counts();
    const auto steps = static_cast<double>(iterations_);
    write(report::EpochEnded{
        .epoch = 1, .loss = results_.losses.back().sum, .accuracy = kUnknown, .seconds = seconds});
    write(report::RunEnded{
        .test_accuracy = kUnknown,
        .seconds_per_step = seconds / steps,
        .peak_memory_bytes = memory_.bytes(),
        .parameter_bytes = bytes_of(net->parameters()),
        .optimizer_state_bytes = momentum_bytes(net),
        .weight_casts_per_step =
            static_cast<double>(casts.weight_casts - casts_before_.weight_casts) / steps,
        .activation_casts_per_step =
            static_cast<double>(casts.activation_casts - casts_before_.activation_casts) / steps,
        .skipped_steps = results_.skipped,
        .final_scale = results_.loss_scale});
    return results_;
  }

 private:
  void write(const report::Event& event) {
    bar_->write(event);
    report::add(all_, event);
  }
  void log(const std::string& text) {
    clear_progress_line();
    std::cout << text << std::endl;
    report::add(all_, report::Message{text});
  }

  at::Device device_;
  std::int64_t batch_size_, iterations_, logged_ = 0;
  RunResults results_;
  report::Report& all_;
  std::unique_ptr<report::Sink> bar_ = report::progress();
  gluon::metric::Loss ce_metric_{"CrossEntropy"}, smoothl1_metric_{"SmoothL1"};
  std::vector<at::Tensor> losses_;  // sum, classes and boxes of each iteration, on the device
  MemoryPeak memory_;
  mezzo::CastCounts casts_before_ = mezzo::cast_counts();
  Clock::time_point begun_ = Clock::now(), since_ = begun_;
  mezzo::MessageSink messages_before_;
};

Ssd get_network(const TrainingSettings& settings, at::Device device) {
  torch::manual_seed(static_cast<std::uint64_t>(settings.seed));
  Ssd net;
  if (settings.params.empty()) {
    initialize_weights(*net);
  } else {
    load_mxnet_weights(*net, settings.params);
  }
  net->to(device);
  return net;
}

/// The gradient of the sum of all of them, as autograd.backward has it for a list.
void backward(const std::vector<at::Tensor>& losses) {
  std::vector<at::Tensor> ones;
  ones.reserve(losses.size());
  for (const at::Tensor& loss : losses) ones.push_back(torch::ones_like(loss));
  torch::autograd::backward(losses, ones);
}

}  // namespace

RunResults train(const TrainingSettings& settings, const std::string& dtype, report::Report& all) {
  const std::vector<at::Device> ctx{device_of(settings.device)};
  const bool mixed = dtype != "float32";
  torch::manual_seed(static_cast<std::uint64_t>(settings.seed));
  SyntheticDataLoader train_data =
      settings.data.empty() ? SyntheticDataLoader(settings.data_shape, settings.batch_size,
                                                  settings.iterations, ctx[0].is_cuda())
                            : SyntheticDataLoader(settings.data, settings.iterations);
  Journal journal(settings, dtype, train_data.batch().data.size(0), ctx[0], all);

  std::optional<gluon::Handle> amp;
  if (mixed) amp.emplace(gluon::init({.target_dtype = dtype}));  // the first of three more lines

  Ssd net = get_network(settings, ctx[0]);
  gluon::Trainer trainer(
      *net, "sgd",
      {{"learning_rate", settings.lr}, {"wd", settings.wd}, {"momentum", settings.momentum}});
  if (mixed) gluon::init_trainer(trainer);  // the second

  const SsdMultiBoxLoss mbox_loss;
  std::int64_t i = 0;
  for (auto batch = train_data.next(); batch; batch = train_data.next()) {
    const auto data = gluon::split_and_load(batch->data, ctx);
    const auto cls_targets = gluon::split_and_load(batch->cls_targets, ctx);
    const auto box_targets = gluon::split_and_load(batch->box_targets, ctx);
    std::vector<at::Tensor> cls_preds, box_preds;
    for (const at::Tensor& x : data) {
      auto [cls_pred, box_pred, anchors] = net(x);
      cls_preds.push_back(cls_pred);
      box_preds.push_back(box_pred);
    }
    const MultiBoxLosses losses = mbox_loss(cls_preds, box_preds, cls_targets, box_targets);
    if (mixed) {
      gluon::scale_loss(losses.sum, trainer).backward();  // the third
    } else {
      backward(losses.sum);
    }
    trainer.step(1);
    trainer.zero_grad();
    journal.iteration(i++, losses, trainer);
  }
  return journal.end(net);
}

}  // namespace examples
