// The networks of the suite "train": small ones of the kinds that programs train.
#pragma once

#include <torch/torch.h>

#include <array>
#include <memory>

namespace mezzo::bench {

/// A network with one batch of its own.
class TrainNetwork : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  virtual at::Tensor input() const = 0;
  /// A scalar; `output` is float.
  virtual at::Tensor loss(const at::Tensor& output) const = 0;
};

struct TrainNetworkRow {
  const char* name;
  std::shared_ptr<TrainNetwork> (*make)();
};

extern const std::array<TrainNetworkRow, 6> kTrainNetworks;

}  // namespace mezzo::bench
