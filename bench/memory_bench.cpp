// Bytes of tensors in training: what is alive between two steps, and what a step takes beside it;
// at every level, with parts that run again in the backward pass, with deferred unscaling, and with
// split masters.
#include <torch/torch.h>

#include <memory>
#include <string>

#include "allocations.h"
#include "mezzo/amp.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"
#include "mezzo/recompute.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

constexpr int kDepth = 16;
constexpr std::int64_t kWide = 256, kBatchRows = 512;

/// Each layer saves two activations, the inputs of its product and of its GELU.
struct DeepGeluImpl : torch::nn::Module {
  explicit DeepGeluImpl(int run_in) : segments(run_in) {
    for (int i = 0; i < kDepth; ++i) {
      layers->push_back(torch::nn::Linear(kWide, kWide));
      layers->push_back(torch::nn::GELU());
    }
    register_module("layers", layers);
  }
  at::Tensor forward(const at::Tensor& x) {
    return segments == 1 ? layers->forward(x) : recompute_sequential(layers, segments, x);
  }
  torch::nn::Sequential layers;
  int segments;
};
TORCH_MODULE(DeepGelu);

struct MemoryRow {
  const char* level;
  int segments = 1;
  bool defers = false;
  bool splits = false;

  std::string name() const {
    return std::string(level) + (splits ? ", split masters" : "") +
           (defers ? ", deferred unscaling" : "") +
           (segments > 1 ? ", recomputed in " + std::to_string(segments) + " segments" : "");
  }
};

struct Bytes {
  double alive, step;
};

Bytes bytes_of(const MemoryRow& row) {
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({kBatchRows, kWide});
  auto alive = std::make_unique<LiveBytes>();
  DeepGelu net(row.segments);
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(1e-4));
  auto [model, optimizer] = amp::initialize(net, adam,
                                            {.opt_level = row.level,
                                             .loss_scale = 64.0,
                                             .verbosity = 0,
                                             .defer_unscale = row.defers,
                                             .split_masters = row.splits});
  const auto step = [&, &model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    amp::scale_loss(model(x).square().mean(), optimizer).backward();
    optimizer.step();
  };
  for (int i = 0; i < 2; ++i) step();
  optimizer.zero_grad();
  Bytes result{static_cast<double>(alive->now()), 0};
  alive.reset();
  const LiveBytes of_step;
  step();
  result.step = static_cast<double>(of_step.peak());
  return result;
}

}  // namespace

void run_memory(Report& report, const Settings& settings) {
  // As where the processor or GPU has the types: else rounded weights are kept in float.
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16})
    set_compute_mode(low, ComputeMode::kNative);
  const Bytes in_float = bytes_of({.level = "O0"});
  for (const MemoryRow& row :
       {MemoryRow{"O0"}, MemoryRow{"O1"}, MemoryRow{"O2"}, MemoryRow{"O3"}, MemoryRow{"O4"},
        MemoryRow{"O5"}, MemoryRow{"O1", 1, true}, MemoryRow{"O2", 1, true}, MemoryRow{"O0", 4},
        MemoryRow{"O2", 4}, MemoryRow{"O5", 4}, MemoryRow{"O2", 4, true},
        MemoryRow{"O5", 1, false, true}, MemoryRow{"O5", 1, true, true},
        MemoryRow{"O5", 4, false, true}}) {
    if (!settings.wants(row.name())) continue;
    const Bytes ours = bytes_of(row);
    const auto add = [&](const char* what, double own, double peer) {
      report.add({.name = row.name() + ": " + what,
                  .unit = "bytes",
                  .ours = own,
                  .peer = peer,
                  .peer_name = "O0"});
    };
    add("alive between steps", ours.alive, in_float.alive);
    add("a step takes beside", ours.step, in_float.step);
  }
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16})
    set_compute_mode(low, ComputeMode::kAuto);
}

}  // namespace mezzo::bench
