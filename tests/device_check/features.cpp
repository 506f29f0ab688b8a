// The parts of a training beside ordinary steps, on the device: skips, checkpoints, averages,
// memory.
#include <unistd.h>
#include <filesystem>

#include "device_check/parts.h"
#include "device_check/training.h"

namespace mezzo::device_check {
namespace {

constexpr std::array<const char*, 4> kLevels{"O1", "O2", "O4", "O5"};

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!torch::equal(a[i], b[i])) return false;
  return true;
}

// An overflow moves nothing, is counted, and the next step goes on.
void skip_a_step(const Device& device, const Setup& setup, Check& check) {
  Training training(device, setup);
  for (std::uint64_t step = 0; step < 3; ++step) training.step(training.batch(step));
  const auto before = training.weights();
  training.step(training.batch(3), /*overflow=*/true);
  check.expect(equal(training.weights(), before), "a step after an overflow moved weights");
  check.expect(training.optimizer.skipped_steps() == 1,
               std::to_string(training.optimizer.skipped_steps()) + " steps count as skipped");
  training.step(training.batch(4));
  check.expect(!equal(training.weights(), before), "the step after a skipped one moved nothing");
  check.expect(training.optimizer.applied_steps() == 4,
               std::to_string(training.optimizer.applied_steps()) + " steps count as applied");
}

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("mezzo_device_check_" + std::to_string(::getpid())))
                         .string();
  ~TemporaryFile() { std::filesystem::remove(path); }
};

// A training that was saved goes on bit by bit, on the device and, read there, on the CPU.
void resume(const Device& device, const Setup& setup, Check& check) {
  const TemporaryFile file;
  Training first(device, setup);
  for (std::uint64_t step = 0; step < 3; ++step) first.step(first.batch(step));
  amp::save_checkpoint(file.path, first.model, first.optimizer);
  Training second(device, setup);
  amp::load_checkpoint(file.path, second.model, second.optimizer);
  const Device cpu("cpu", device.is_small());
  Training third(cpu, setup);
  amp::load_checkpoint(file.path, third.model, third.optimizer);
  check.expect(equal(second.weights(), first.weights()), "weights read on the device differ");
  check.expect(equal(third.weights(), first.weights()), "weights read on the CPU differ");
  const auto start = first.weights();
  for (std::uint64_t step = 3; step < 6; ++step) {
    first.step(first.batch(step));
    second.step(second.batch(step));
    third.step(third.batch(step));
  }
  check.expect(equal(second.weights(), first.weights()),
               "the training that was read goes another way");
  const double apart = relative_distance(third.weights(), first.weights(), start);
  check.figure("weights_apart_on_the_cpu", apart);
  check.expect(apart < 0.3, "read on the CPU it goes another way: " + std::to_string(apart));
}

void average_weights(const Device& device, const Setup& setup, Check& check) {
  Training training(device, setup);
  amp::Ema ema(training.model, 0.8);
  auto expected = training.weights();
  for (std::uint64_t step = 0; step < 5; ++step) {
    training.step(training.batch(step), /*overflow=*/step == 2);
    ema.update();
    if (step == 2) continue;
    const auto weights = training.weights();
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = 0.8 * expected[i] + 0.2 * weights[i];
  }
  const auto averages = ema.averages();
  std::size_t i = 0;
  double apart = 0;
  for (const auto& item : training.model.named_parameters()) {
    const at::Tensor average = averages[item.key()].to(at::kCPU, at::kDouble);
    apart = std::max(apart, (average - expected[i++]).abs().max().item<double>());
  }
  check.figure("apart", apart);
  check.expect(apart < 1e-6, "averages lie " + std::to_string(apart) + " from float64's");
  check.expect(ema.updates() == 4, std::to_string(ema.updates()) + " updates count");
  // Applied and restored, the model computes with averages and then with its weights again.
  const Batch batch = training.batch(0);
  const torch::NoGradGuard no_grad;
  training.model.eval();
  const at::Tensor own = training.model(batch.input).to(at::kFloat);
  ema.apply();
  check.expect(!torch::equal(training.model(batch.input).to(at::kFloat), own),
               "applied averages do not show");
  ema.restore();
  check.expect(torch::equal(training.model(batch.input).to(at::kFloat), own),
               "restored weights do not show");
}

// The bytes that are held after a step do not grow.
void keep_memory(const Device& device, const Setup& setup, Check& check) {
  if (device.cuda() == nullptr) return check.skip("only CUDA's allocator counts");
  Training training(device, setup);
  const Batch batch = training.batch(0);
  std::int64_t before = 0;
  for (int step = 0; step < 200; ++step) {
    training.step(batch);
    if (step == 20) before = device.cuda()->held_bytes();
  }
  const std::int64_t grown = device.cuda()->held_bytes() - before;
  check.figure("grown_bytes", grown);
  check.expect(grown <= 0, "180 steps kept " + std::to_string(grown) + " bytes");
}

}  // namespace

void check_features(const Device& device, Results& results) {
  using Trial = void (*)(const Device&, const Setup&, Check&);
  const auto all = [&](const std::string& what, Trial trial, const Setup& setup) {
    results.check(what + ": " + name_of(setup), [&](Check& check) { trial(device, setup, check); });
  };
  for (const std::string level : kLevels) {
    for (const std::string optimizer : {"FusedAdam", "FusedLAMB", "torch AdamW"})
      all("a skipped step", skip_a_step, {.level = level, .optimizer = optimizer});
    all("a skipped step", skip_a_step, {.level = level, .defer_unscale = true});
    all("a checkpoint", resume, {.level = level});
    all("averages", average_weights, {.level = level});
    all("memory", keep_memory, {.level = level});
  }
  all("a checkpoint", resume, {.level = "O5", .split_masters = true});
  all("a checkpoint", resume, {.level = "O2", .optimizer = "FusedSGD"});
}

}  // namespace mezzo::device_check
