// A training that can stop at any micro-batch, and the file in which it goes on.
#pragma once

#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "amp/training.h"
#include "mezzo/optim.h"

namespace mezzo::amp {

/// A file that is gone afterwards.
struct File {
  std::string path =
      (std::filesystem::temp_directory_path() /
       ("mezzo_checkpoint_" + std::to_string(::getpid()) + "_" + std::to_string(count++)))
          .string();
  ~File() { std::filesystem::remove(path); }
  std::string read() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  static inline int count = 0;
};

inline const std::vector<std::string> kKinds{
    "SGD",      "Adam",      "AdamW",     "Adagrad",       "RMSprop",
    "FusedSGD", "FusedAdam", "FusedLAMB", "FusedNovoGrad", "FusedAdagrad"};

inline std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind,
                                                               TinyNet& net) {
  if (kind == "SGD") {
    return std::make_unique<torch::optim::SGD>(net->parameters(),
                                               torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  if (kind == "Adam") {
    return std::make_unique<torch::optim::Adam>(
        net->parameters(), torch::optim::AdamOptions(0.01).eps(1e-4).weight_decay(0.5));
  }
  if (kind == "AdamW") {
    return std::make_unique<torch::optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(0.01).eps(1e-4).weight_decay(0.5));
  }
  if (kind == "Adagrad") {
    return std::make_unique<torch::optim::Adagrad>(net->parameters(),
                                                   torch::optim::AdagradOptions(0.01));
  }
  if (kind == "RMSprop") {
    return std::make_unique<torch::optim::RMSprop>(
        net->parameters(), torch::optim::RMSpropOptions(0.01).eps(1e-3).momentum(0.5));
  }
  if (kind == "FusedLAMB") {
    return std::make_unique<optim::FusedLAMB>(net->parameters(), optim::FusedLAMBOptions(0.01));
  }
  if (kind == "FusedNovoGrad") {
    return std::make_unique<optim::FusedNovoGrad>(net->parameters(),
                                                  optim::FusedNovoGradOptions(0.01));
  }
  if (kind == "FusedAdagrad") {
    return std::make_unique<optim::FusedAdagrad>(net->parameters(),
                                                 optim::FusedAdagradOptions(0.01));
  }
  if (kind == "FusedSGD") {
    return std::make_unique<optim::FusedSGD>(net->parameters(),
                                             optim::FusedSGDOptions(0.05).momentum(0.9));
  }
  return std::make_unique<optim::FusedAdam>(
      net->parameters(), optim::FusedAdamOptions(0.01).eps(1e-4).weight_decay(0.5).adam_w_mode(
                             kind != "FusedAdamWithL2"));
}

/// A training whose micro-batches, two to a step, can be played one by one.
struct Training {
  Training(const std::string& level, const std::string& kind, const LossScale& scale, int seed = 6)
      : net(seeded(seed)),
        inner(make_optimizer(kind, net)),
        handles(initialize(net, *inner, options(level, scale))) {}

  static TinyNet seeded(int seed) {
    torch::manual_seed(seed);
    return TinyNet();
  }
  static Options options(const std::string& level, const LossScale& scale) {
    Options result = at_level(level);
    result.loss_scale = scale;
    result.growth_interval = 3;
    return result;
  }

  /// Micro-batch `index`; the fifth overflows.
  void play(int index) {
    const at::Tensor x = inputs() * (1 + 0.1 * index);
    const double factor = index == 4 ? std::numeric_limits<double>::infinity() : 0.5;
    scale_loss(loss_of(model, x) * factor, optimizer).backward();
    if (index % 2 == 0) return;
    optimizer.step();
    optimizer.zero_grad();
  }
  void play(int begin, int end) {
    for (int index = begin; index < end; ++index) play(index);
  }

  std::vector<at::Tensor> everything() const {
    std::vector<at::Tensor> values = values_of(*net);
    for (const at::Tensor& master : master_params(optimizer))
      values.push_back(master.detach().clone());
    return values;
  }

  TinyNet net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  std::pair<Model<TinyNet>, Optimizer> handles;
  Model<TinyNet>& model = handles.first;
  Optimizer& optimizer = handles.second;
};

}  // namespace mezzo::amp
