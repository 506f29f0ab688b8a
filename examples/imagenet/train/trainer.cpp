#include "imagenet/train/trainer.h"

#include <mezzo/error.h>
#include <mezzo/parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "imagenet/train/averaging.h"
#include "imagenet/train/setup.h"
#include "imagenet/train/stop_signals.h"
#include "support/optimizers.h"
#include "support/process.h"

namespace examples::imagenet {
namespace {

Share share_of_this_process() {
  if (!mezzo::parallel::is_initialized()) return {};
  return {mezzo::parallel::rank(), mezzo::parallel::world_size()};
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  return torch::nn::functional::cross_entropy(
      logits, labels, torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(smoothing));
}

double waited_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string best_file(const std::string& checkpoint) {
  return (std::filesystem::path(checkpoint).parent_path() / "model_best.safetensors").string();
}

}  // namespace

Trainer::Trainer(const Settings& settings)
    : s_(settings),
      share_(share_of_this_process()),
      device_(device_for(settings)),
      data_(open_data(settings, device_, share_,
                      [this](const std::string& text) { reporter_->tell(text); })),
      meter_(device_),
      profile_(settings.prof, share_.rank == 0 ? settings.prof_file : "") {
  if (!s_.checkpoint.empty() && share_.rank == 0) require_writable(s_.checkpoint);
  set_deterministic(s_.deterministic);
  network_ = network_for(s_, data_.kinds, device_);
  sgd_ = std::make_unique<torch::optim::SGD>(
      network_->parameters(),
      torch::optim::SGDOptions(s_.rate.base).momentum(s_.momentum).weight_decay(s_.weight_decay));
  recipe_ =
      make_recipe({s_.how, s_.opt_level, s_.loss_scale, s_.keep_batchnorm_fp32, s_.ema, s_.reducer},
                  network_, *sgd_);
  position_.epoch = s_.start_epoch;
  if (!s_.resume.empty()) position_ = position_of(recipe_->load(s_.resume), origin(), s_.resume);
  reporter_ = std::make_unique<Reporter>(
      s_,
      mezzo::report::RunStarted{.run = s_.how == "amp" ? s_.opt_level : s_.how,
                                .epochs = s_.epochs,
                                .steps_per_epoch = data_.steps,
                                .batch_size = images_per_step(),
                                .items = "images",
                                .machine = machine_of(device_)},
      share_.rank == 0);
}

std::int64_t Trainer::images_per_step() const {
  return std::int64_t{s_.batch_size} * share_.ranks;
}

Origin Trainer::origin() const {
  return {{"arch", s_.arch},
          {"seed", std::to_string(s_.seed)},
          {"batch size", std::to_string(s_.batch_size)},
          {"processes", std::to_string(share_.ranks)},
          {"data", s_.synthetic ? "synthetic" : std::to_string(data_.folder->fingerprint())}};
}

void Trainer::train_step(const TensorBatch& batch) {
  // Dropout follows from the step, not from the place where the training was resumed.
  const auto step = static_cast<std::uint64_t>(position_.epoch * data_.steps + position_.step);
  constexpr std::uint64_t kPurpose = 4;
  torch::manual_seed(Random({static_cast<std::uint64_t>(s_.seed), kPurpose,
                             static_cast<std::uint64_t>(share_.rank), step})
                         .next());
  const double rate = s_.rate.at(position_.epoch, position_.step, data_.steps, images_per_step());
  for (auto& group : sgd_->param_groups()) group.options().set_lr(rate);

  const at::Tensor logits = recipe_->forward(batch.images);
  const at::Tensor loss = loss_of(logits, batch.labels, s_.label_smoothing);
  recipe_->backward(loss);
  recipe_->step();
  meter_.add(loss, logits, batch.labels);
  loss_ = loss.detach();
}

void Trainer::report_step() {
  const Figures so_far = meter_.figures();
  reporter_->step({.epoch = position_.epoch + 1,
                   .step = position_.step,
                   .loss = loss_.item<double>(),
                   .images = steps_since_ * images_per_step(),
                   .steps = steps_since_},
                  so_far, recipe_->counters());
  steps_since_ = 0;
}

Trainer::Stopped Trainer::train_epoch() {
  network_->train();
  meter_ = Meter(device_);
  if (position_.sums.defined() && share_.rank == 0) meter_.set_sums(position_.sums);
  data_.training->begin(position_.epoch, position_.step);
  reporter_->begin_epoch(recipe_->counters());
  steps_since_ = 0;
  while (position_.step < data_.steps) {
    const auto waiting = std::chrono::steady_clock::now();
    const std::optional<TensorBatch> batch = data_.training->next();
    if (!batch) throw mezzo::Error("the images ended before the epoch");
    reporter_->waited(waited_since(waiting));
    if (profile_.is_over()) return Stopped::kProfile;
    train_step(*batch);
    ++position_.step;
    ++steps_since_;
    const bool is_last = position_.step == data_.steps;
    if (position_.step % s_.print_freq == 0 || is_last) report_step();
    if (StopSignals::noted_anywhere() != 0) return Stopped::kSignal;
    if (s_.checkpoint_steps > 0 && position_.step % s_.checkpoint_steps == 0 && !is_last) {
      position_.sums = meter_.sums();
      save(s_.checkpoint);
    }
  }
  return Stopped::kNo;
}

std::optional<Figures> Trainer::evaluate() {
  const torch::NoGradGuard no_grad;
  network_->eval();
  // Each rank has moved statistics of its own since rank 0's were given to all.
  if (has_several_ranks()) mezzo::parallel::broadcast_all(network_->buffers());
  const std::shared_ptr<void> averages = recipe_->averages_applied();
  Meter meter(device_);
  data_.test->begin(0, 0);
  // Ranks may have different numbers of batches: they agree on a stop when all have ended.
  while (StopSignals::noted() == 0) {
    const std::optional<TensorBatch> batch = data_.test->next();
    if (!batch) break;
    const at::Tensor logits = recipe_->predict(batch->images);
    meter.add(loss_of(logits, batch->labels, 0), logits, batch->labels);
  }
  if (StopSignals::noted_anywhere() != 0) return {};
  return meter.figures();
}

bool Trainer::finish_epoch(const Figures& test) {
  reporter_->end_epoch(position_.epoch + 1, meter_.figures(), test);
  const bool is_best = test.top1 > position_.best;
  position_.best = std::max(position_.best, test.top1);
  ++position_.epoch;
  position_.step = 0;
  position_.sums = at::Tensor();
  const bool is_saved = save(s_.checkpoint);
  if (is_best) save(best_file(s_.checkpoint));
  return is_saved;
}

bool Trainer::save(const std::string& file) {
  if (s_.checkpoint.empty() || share_.rank != 0) return true;
  try {
    recipe_->save(file, notes_of(position_, origin()));
  } catch (const std::exception& error) {
    reporter_->tell("no checkpoint, the training goes on: " + std::string(error.what()));
    return false;
  }
  return true;
}

int Trainer::stop() {
  const int signal = StopSignals::noted_anywhere();
  if (position_.step > 0) position_.sums = meter_.sums();
  if (!save(s_.checkpoint)) throw mezzo::Error("stopped by a signal without a checkpoint");
  reporter_->tell("stopped by a signal in epoch " + std::to_string(position_.epoch + 1) +
                  " after step " + std::to_string(position_.step) +
                  (s_.checkpoint.empty() ? "" : "; go on with --resume " + s_.checkpoint));
  return exit_code_of(signal);
}

int Trainer::run() {
  const StopSignals signals;
  const MemoryPeak memory;
  if (s_.evaluate) {
    const std::optional<Figures> test = evaluate();
    if (!test) return exit_code_of(StopSignals::noted_anywhere());
    reporter_->tell("test loss " + std::to_string(test->loss) + ", " + shown(*test));
    return 0;
  }
  bool is_saved = true;
  while (position_.epoch < s_.epochs) {
    const Stopped stopped = train_epoch();
    if (stopped == Stopped::kSignal) return stop();
    if (stopped == Stopped::kProfile) {
      reporter_->tell("wrote the trace " + s_.prof_file);
      return 0;
    }
    const std::optional<Figures> test = evaluate();
    if (!test) return stop();  // evaluated when it is resumed
    is_saved = finish_epoch(*test);
    if (StopSignals::noted_anywhere() != 0) return stop();
  }
  if (!is_saved) throw mezzo::Error("the last checkpoint could not be written");
  reporter_->end_run({.peak_memory_bytes = memory.bytes(),
                      .parameter_bytes = bytes_of(network_->parameters()),
                      .master_bytes = recipe_->master_bytes(),
                      .optimizer_state_bytes = state_bytes(*sgd_)},
                     recipe_->counters());
  return 0;
}

}  // namespace examples::imagenet
