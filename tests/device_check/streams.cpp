// One model that several threads call, each on a stream of its own.
#include <c10/core/StreamGuard.h>

#include <thread>

#include "device_check/parts.h"
#include "device_check/training.h"

namespace mezzo::device_check {
namespace {

constexpr int kThreads = 4;

// After each change of the weights all threads begin at once: one of them casts the copies that
// the others compute with.
void infer(const Device& device, const Setup& setup, Check& check) {
  const int rounds = device.is_small() ? 3 : 20;
  Training training(device, setup);
  training.model.eval();
  const Batch batch = training.batch(0);
  std::vector<c10::Stream> streams;
  for (int i = 0; i < kThreads; ++i) streams.push_back(device.new_stream());
  for (int round = 0; round < rounds; ++round) {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& weight : training.model.parameters()) weight.mul_(0.99);
    training.optimizer.invalidate_casts();
    device.wait();
    std::vector<at::Tensor> results(kThreads);
    std::vector<std::string> errors(kThreads);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        try {
          const torch::NoGradGuard none;
          const c10::StreamGuard own(streams[i]);
          results[i] = training.model(batch.input).to(at::kFloat);
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    device.wait();
    for (const std::string& error : errors) check.expect(error.empty(), error);
    const at::Tensor expected = training.model(batch.input).to(at::kFloat);
    device.wait();
    for (const at::Tensor& result : results)
      check.expect(result.defined() && torch::allclose(result, expected, 1e-3, 1e-3),
                   "round " + std::to_string(round) + ": a stream computes something else");
  }
}

// A training that moves from stream to stream goes the way of one that stays.
void train_on_streams(const Device& device, const Setup& setup, Check& check) {
  Training moving(device, setup);
  Training staying(device, setup);
  const auto start = staying.weights();
  for (std::uint64_t step = 0; step < 6; ++step) {
    device.wait();
    {
      const c10::StreamGuard own(device.new_stream());
      moving.step(moving.batch(step));
      device.wait();
    }
    staying.step(staying.batch(step));
  }
  device.wait();
  const double apart = relative_distance(moving.weights(), staying.weights(), start);
  check.figure("weights_apart", apart);
  check.expect(apart < 0.02, "weights lie " + std::to_string(apart) + " of the way apart");
}

}  // namespace

void check_streams(const Device& device, Results& results) {
  for (const std::string level : {"O1", "O2", "O4", "O5"}) {
    for (const std::string network : {"mlp", "gpt"}) {
      const Setup setup{.network = network, .level = level};
      results.check("threads with streams of their own: " + level + " " + network,
                    [&](Check& check) { infer(device, setup, check); });
      results.check("a training that moves from stream to stream: " + level + " " + network,
                    [&](Check& check) { train_on_streams(device, setup, check); });
    }
  }
}

}  // namespace mezzo::device_check
