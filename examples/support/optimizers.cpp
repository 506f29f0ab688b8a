#include "support/optimizers.h"

#include <mezzo/error.h>
#include <mezzo/optim.h>
#include <torch/torch.h>

namespace examples {
namespace {

namespace fused = mezzo::optim;
using Params = std::vector<at::Tensor>;
using Made = std::unique_ptr<torch::optim::Optimizer>;

constexpr double kMomentum = 0.9;
constexpr double kDecay = 5e-4;

struct Row {
  const char* name;
  double peak_rate;
  Made (*make)(const Params&, double rate);
};

constexpr Row kRows[] = {
    {"sgd", 0.1,
     [](const Params& params, double rate) -> Made {
       return std::make_unique<torch::optim::SGD>(
           params, torch::optim::SGDOptions(rate).momentum(kMomentum).weight_decay(kDecay));
     }},
    {"fused-sgd", 0.1,
     [](const Params& params, double rate) -> Made {
       return std::make_unique<fused::FusedSGD>(
           params, fused::FusedSGDOptions(rate).momentum(kMomentum).weight_decay(kDecay));
     }},
    {"adam", 2e-3,
     [](const Params& params, double rate) -> Made {
       return std::make_unique<torch::optim::Adam>(params, torch::optim::AdamOptions(rate));
     }},
    {"fused-adam", 2e-3,
     [](const Params& params, double rate) -> Made {
       return std::make_unique<fused::FusedAdam>(params, fused::FusedAdamOptions(rate));
     }},
    {"fused-lamb", 5e-3,
     [](const Params& params, double rate) -> Made {
       return std::make_unique<fused::FusedLAMB>(params, fused::FusedLAMBOptions(rate));
     }},
    {"fused-novograd", 5e-3,
     [](const Params& params, double rate) -> Made {
       return std::make_unique<fused::FusedNovoGrad>(params, fused::FusedNovoGradOptions(rate));
     }},
    {"fused-adagrad", 1e-2, [](const Params& params, double rate) -> Made {
       return std::make_unique<fused::FusedAdagrad>(params, fused::FusedAdagradOptions(rate));
     }}};

const Row& row_of(const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row;
  }
  throw mezzo::ConfigError("--optimizer: '" + name + "' is none; expected one of " +
                           optimizer_names());
}

}  // namespace

std::string optimizer_names() {
  std::string names;
  for (const Row& row : kRows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

void require_optimizer(const std::string& name) {
  row_of(name);
}

NamedOptimizer make_optimizer(const std::string& name, const Params& params) {
  const Row& row = row_of(name);
  return {row.make(params, row.peak_rate), row.peak_rate};
}

std::int64_t state_bytes(torch::optim::Optimizer& optimizer) {
  std::int64_t sum = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) sum += static_cast<std::int64_t>(tensor.nbytes());
  };
  for (const auto& [parameter, state] : optimizer.state()) {
    if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(state.get())) {
      add(sgd->momentum_buffer());
    } else if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(state.get())) {
      add(adam->exp_avg());
      add(adam->exp_avg_sq());
      add(adam->max_exp_avg_sq());
    } else if (const auto* adagrad =
                   dynamic_cast<const torch::optim::AdagradParamState*>(state.get())) {
      add(adagrad->sum());
    }
  }
  return sum;
}

}  // namespace examples
