// One training under a level on the device, and the same in float64 on the CPU.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device_check/device.h"
#include "device_check/networks.h"
#include "mezzo/amp.h"
#include "mezzo/optim.h"

namespace mezzo::device_check {

/// The optimizers that are tried: ours, one clipped, LARC, and one of LibTorch's.
extern const std::array<std::string_view, 8> kOptimizers;

/// An optimizer of that name over these parameters; `plain`: where LibTorch has the same one, that.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        std::vector<at::Tensor> parameters,
                                                        bool plain);
/// The bound of gradients' norms that make_optimizer gives it; 0: none.
double clips_at(std::string_view optimizer);

struct Setup {
  std::string network = "mlp";
  std::string level = "O1";
  std::string optimizer = "FusedAdam";
  bool defer_unscale = false;
  bool split_masters = false;
};

std::string name_of(const Setup& setup);

/// A network under a level, on the device.
class Training {
 public:
  Training(const Device& device, const Setup& setup);

  /// The batch of a step, on the device.
  Batch batch(std::uint64_t step) const;
  /// Forward, backward and step. Returns the loss, a tensor on the device. A loss that is infinite
  /// is an overflow on purpose.
  at::Tensor step(const Batch& batch, bool overflow = false);
  at::Tensor forward_and_backward(const Batch& batch, bool overflow = false);
  /// The weights that the optimizer moves, in double on the CPU.
  std::vector<at::Tensor> weights() const;

 private:
  std::shared_ptr<CheckedNetwork> net_;
  at::Device place_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  std::unique_ptr<optim::LARC> larc_;

 public:
  // Handles end before the optimizer that they step.
  amp::Model<std::shared_ptr<CheckedNetwork>> model;
  amp::Optimizer optimizer;
};

/// The same training in float64 on the CPU, without levels.
class Reference {
 public:
  explicit Reference(const Setup& setup);
  double step(std::uint64_t step);
  std::vector<at::Tensor> weights() const;

 private:
  std::string name_;
  std::shared_ptr<CheckedNetwork> net_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  std::unique_ptr<optim::LARC> larc_;
};

/// The distance of `a` from `b`, in units of how far `b` lies from `start`.
double relative_distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         const std::vector<at::Tensor>& start);

}  // namespace mezzo::device_check
