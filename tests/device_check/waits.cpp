// Host waits in a training step, counted by CUDA's own debug mode.
#include "device_check/parts.h"
#include "device_check/training.h"

namespace mezzo::device_check {
namespace {

constexpr int kWarmSteps = 3;

// A wait is an error, whose stack says where it is.
void step_without_waits(const Device& device, const Setup& setup, bool averaged, Check& check) {
  Training training(device, setup);
  const Batch batch = training.batch(0);
  std::optional<amp::Ema> ema;
  if (averaged) ema.emplace(training.model, 0.9);
  const auto step = [&] {
    training.step(batch);
    if (ema) ema->update();
  };
  for (int i = 0; i < kWarmSteps; ++i) step();
  device.wait();
  {
    const NoWaits none(device);
    for (int i = 0; i < 2; ++i) step();
  }
  check.expect(training.optimizer.applied_steps() == kWarmSteps + 2, "a step was skipped");
  if (device.cuda() == nullptr) check.skip("the steps ran; only CUDA counts waits");
}

// An optimizer that knows no flag waits for it once.
void count_waits(const Device& device, const Setup& setup, int most, Check& check) {
  Training training(device, setup);
  const Batch batch = training.batch(0);
  for (int i = 0; i < kWarmSteps; ++i) training.step(batch);
  device.wait();
  int count = 0;
  {
    const CountedWaits waits(device);
    training.step(batch);
    count = waits.count();
  }
  check.figure("waits", count);
  check.expect(count <= most,
               std::to_string(count) + " waits, " + std::to_string(most) + " are expected");
  if (device.cuda() == nullptr) check.skip("the steps ran; only CUDA counts waits");
}

}  // namespace

void check_waits(const Device& device, Results& results) {
  const auto none = [&](const Setup& setup, bool averaged) {
    results.check("no wait: " + name_of(setup) + (averaged ? ", averaged" : ""),
                  [&](Check& check) { step_without_waits(device, setup, averaged, check); });
  };
  for (const std::string level : {"O1", "O2", "O4", "O5"}) {
    for (const std::string network : {"mlp", "resnet", "gpt", "lstm"})
      none({.network = network, .level = level}, false);
    for (const std::string optimizer :
         {"FusedSGD", "FusedLAMB", "FusedNovoGrad", "FusedAdagrad", "FusedAdam clipped"})
      none({.level = level, .optimizer = optimizer}, false);
    none({.level = level, .defer_unscale = true}, false);
    none({.level = level}, true);
    const Setup foreign{.level = level, .optimizer = "torch AdamW"};
    results.check("one wait: " + name_of(foreign),
                  [&](Check& check) { count_waits(device, foreign, 1, check); });
  }
}

}  // namespace mezzo::device_check
