// Trainings at every level on the device against float64 on the CPU.
#include <cmath>

#include "device_check/parts.h"
#include "device_check/training.h"

namespace mezzo::device_check {
namespace {

/// How far a level may lie from float64: losses, relative to the reference's first; weights, in
/// units of the way that the reference went. Weights that did not move lie 1 away, those moved
/// against their gradients 2.
struct Allowed {
  double losses, weights;
};

Allowed allowed_for(const Setup& setup) {
  if (setup.level == "O0") return {2e-4, 0.02};
  // Adam moves by the signs of gradients that are nearly nothing: convolutions before norms have
  // many of them.
  const double many = setup.network == "resnet" ? 4 : 1;
  if (setup.level == "O4" || setup.level == "O5") return {0.01, 0.1 * many};
  return {0.005, 0.07 * many};
}

void train_both(const Device& device, const Setup& setup, Check& check) {
  const int steps = device.is_small() ? 8 : 20;
  Training training(device, setup);
  Reference reference(setup);
  const auto start = reference.weights();
  double first = 0;
  double apart = 0;
  for (int step = 0; step < steps; ++step) {
    // The same few batches, so that the loss falls.
    const auto number = static_cast<std::uint64_t>(step % 4);
    const double expected = reference.step(number);
    const double got = training.step(training.batch(number)).item<double>();
    if (step == 0) first = std::abs(expected);
    check.expect(std::isfinite(got),
                 "the loss of step " + std::to_string(step) + " is " + std::to_string(got));
    apart = std::max(apart, std::abs(got - expected) / first);
  }
  const double distance = relative_distance(training.weights(), reference.weights(), start);
  const Allowed allowed = allowed_for(setup);
  check.figure("losses_apart", apart);
  check.figure("weights_apart", distance);
  check.expect(apart <= allowed.losses, "losses lie " + std::to_string(apart) +
                                            " of the first apart, " +
                                            std::to_string(allowed.losses) + " is allowed");
  check.expect(distance <= allowed.weights, "weights lie " + std::to_string(distance) +
                                                " of their way apart, " +
                                                std::to_string(allowed.weights) + " is allowed");
  check.expect(training.optimizer.applied_steps() == steps, "a step was skipped");
}

}  // namespace

void check_trainings(const Device& device, Results& results) {
  const auto train = [&](const Setup& setup) {
    results.check(name_of(setup), [&](Check& check) { train_both(device, setup, check); });
  };
  for (const NetworkRow& network : kNetworks)
    for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"})
      train({.network = std::string(network.name), .level = level});
  for (const std::string_view optimizer : kOptimizers) {
    if (optimizer == "FusedAdam") continue;
    for (const std::string level : {"O0", "O1", "O2", "O5"})
      train({.level = level, .optimizer = std::string(optimizer)});
  }
  for (const std::string level : {"O1", "O2", "O5"})
    train({.network = "resnet", .level = level, .defer_unscale = true});
  train({.network = "gpt", .level = "O5", .split_masters = true});
}

}  // namespace mezzo::device_check
