// Steps that are captured once and replayed, against the same steps called.
#include <c10/core/StreamGuard.h>

#include "device_check/parts.h"
#include "device_check/training.h"

namespace mezzo::device_check {
namespace {

constexpr int kReplays = 4;

enum class Captured { kForwardAndBackward, kStep };

void replay(const Device& device, const Setup& setup, Captured captured, Check& check) {
  const c10::Stream stream = device.new_stream();
  device.wait();
  const c10::StreamGuard side(stream);
  Training training(device, setup);
  Training called(device, setup);
  const Batch held = training.batch(0);
  // Kernels are loaded, and states and descriptors made, before the capture.
  for (int i = 0; i < 3; ++i) {
    training.step(held);
    called.step(held);
  }
  training.optimizer.zero_grad();
  device.wait();
  const auto start = called.weights();
  {
    const Recording recording(device, [&] {
      if (captured == Captured::kStep) {
        training.step(held);
      } else {
        training.forward_and_backward(held);
      }
    });
    for (std::uint64_t i = 0; i < kReplays; ++i) {
      const Batch next = called.batch(i);
      held.input.copy_(next.input);
      held.target.copy_(next.target);
      recording.play();
      if (captured == Captured::kForwardAndBackward) training.optimizer.step();
      called.step(next);
    }
    device.wait();
  }
  const double apart = relative_distance(training.weights(), called.weights(), start);
  check.figure("weights_apart", apart);
  check.expect(apart < 0.02, "replayed steps lie " + std::to_string(apart) +
                                 " of the way from those that were called");
}

// A call between replays must not compute with what only a capture has written.
void call_after_capture(const Device& device, const Setup& setup, Check& check) {
  const c10::Stream stream = device.new_stream();
  device.wait();
  const c10::StreamGuard side(stream);
  const torch::NoGradGuard no_grad;
  Training training(device, setup);
  training.model.eval();
  const Batch batch = training.batch(0);
  training.model(batch.input);
  Training fresh(device, setup);
  fresh.model.eval();
  const at::Tensor expected = fresh.model(batch.input).to(at::kFloat);
  // The weights' low copies are made anew by whoever comes first: the capture.
  for (const at::Tensor& weight : training.model.parameters()) weight.mul_(1);
  training.optimizer.invalidate_casts();
  device.wait();
  at::Tensor result;
  const Recording recording(device, [&] { result = training.model(batch.input); });
  const at::Tensor eager = training.model(batch.input).to(at::kFloat);
  device.wait();
  check.expect(torch::allclose(eager, expected, 0.02, 0.02),
               "a call after a capture computes something else");
  recording.play();
  device.wait();
  check.expect(torch::allclose(result.to(at::kFloat), expected, 0.02, 0.02),
               "the replay computes something else");
  for (const at::Tensor& weight : training.model.parameters()) weight.zero_();
  training.optimizer.invalidate_casts();
  recording.play();
  device.wait();
  check.expect(result.to(at::kFloat).abs().max().item<double>() == 0,
               "the replay does not see weights that were written after the capture");
}

}  // namespace

void check_graphs(const Device& device, Results& results) {
  for (const std::string level : {"O0", "O1", "O2", "O4", "O5"}) {
    for (const std::string network : {"mlp", "resnet", "gpt"}) {
      const Setup setup{.network = network, .level = level};
      results.check("forward and backward: " + name_of(setup), [&](Check& check) {
        replay(device, setup, Captured::kForwardAndBackward, check);
      });
      results.check("a whole step: " + name_of(setup),
                    [&](Check& check) { replay(device, setup, Captured::kStep, check); });
    }
    const Setup setup{.level = level};
    results.check("a call after a capture: " + level,
                  [&](Check& check) { call_after_capture(device, setup, check); });
  }
}

}  // namespace mezzo::device_check
