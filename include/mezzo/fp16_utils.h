// The oldest way to train in half precision, by hand: a half network with float batch norms, float
// masters beside it, and an optimizer that scales. The names are those of apex.fp16_utils.
//
//   auto half = mezzo::fp16_utils::network_to_half(net);
//   torch::optim::SGD sgd(half.parameters(), 0.1);
//   mezzo::fp16_utils::FP16_Optimizer optimizer(sgd, {.dynamic_loss_scale = true});
//   optimizer.backward(loss_of(half(x)));
//   optimizer.step();
//
// New programs use amp::initialize at O2 (amp.h), which does the same in three lines.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/half_network.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace mezzo::fp16_utils {

/// How a dynamic scale moves: it begins at `init_scale` (1 to 2^127), is divided by `scale_factor`
/// at an overflow (not below 1) and multiplied by it after `scale_window` clean passes in a row.
struct DynamicLossArgs {
  double init_scale = 4294967296.0;
  double scale_factor = 2.0;
  int scale_window = 1000;
};

/// Options of an FP16_Optimizer.
struct FP16OptimizerOptions {
  /// The scale, unless it is dynamic. A static scale other than 1 is checked as well: a gradient
  /// that is not finite skips the step.
  double static_loss_scale = 1.0;

  /// The scale moves, with `dynamic_loss_args` or their defaults; giving these asks for it too.
  bool dynamic_loss_scale = false;
  std::optional<DynamicLossArgs> dynamic_loss_args = {};

  /// Tells which parameters got masters, and each skipped step (set_message_sink).
  bool verbose = true;
};

/// Around an optimizer of a half network: the optimizer steps float masters of the half parameters,
/// the network gets their values. The optimizer must outlive this object, which puts its parameters
/// back, with state, when it is destroyed.
///
/// With `dynamic_loss_args` of {65536, 2, 2000} a network whose weights half can hold trains as it
/// does under amp::initialize at O2, to the last bit.
///
/// Threads: belongs to one training loop.
class MEZZO_API FP16_Optimizer {
 public:
  /// Throws ConfigError for scales and arguments that cannot work, and for an optimizer that is
  /// wrapped or initialized already.
  explicit FP16_Optimizer(torch::optim::Optimizer& optimizer, FP16OptimizerOptions options = {});
  FP16_Optimizer(FP16_Optimizer&&) noexcept;
  FP16_Optimizer& operator=(FP16_Optimizer&&) noexcept;
  ~FP16_Optimizer();

  /// Clears the gradients of the network and of the masters.
  void zero_grad(bool set_to_none = false);

  /// Backward from the scaled loss (one element), then `update_master_grads`. Without it gradients
  /// stay scaled: for all but the last of several losses.
  void backward(const at::Tensor& loss, bool update_master_grads = true, bool retain_graph = false);

  /// Scaled gradients, of `backward` or of a backward pass of the caller's own from
  /// loss * loss_scale(), go to the masters, unscaled; the scale moves and `overflow` is set.
  /// Several updates between two steps add up. Gradients that were cleared, by `zero_grad` or by
  /// setting them to undefined elsewhere, begin anew. Throws Error if a backward pass of the
  /// caller's own added to gradients that were unscaled already (at a static scale of 1 only where
  /// there are masters).
  void update_master_grads();

  /// Steps the masters and copies them to the network. After an overflow nothing moves. Throws
  /// Error before any backward pass and while gradients are scaled, those of a backward pass of the
  /// caller's own included until `update_master_grads`; and after 50 overflows in a row at a scale
  /// of 1, naming the parameter.
  void step();

  /// As above, for optimizers that evaluate the loss themselves. The closure clears gradients, runs
  /// forward and `backward` of this object and returns the loss. An evaluation that overflows is
  /// repeated at the lower scale, at most 20 times; then weights and optimizer are as before, and
  /// the scale stays where it fell.
  /// @return the loss of the first evaluation
  at::Tensor step(torch::optim::Optimizer::LossClosure closure);

  /// Clips the masters' gradients to a norm in place.
  /// @return the norm before; -1 after an overflow, when nothing is clipped
  double clip_master_grads(double max_norm, double norm_type = 2.0);

  /// The masters' gradients by parameter group, undefined if there is none; nothing after an
  /// overflow.
  std::optional<std::vector<std::vector<at::Tensor>>> inspect_master_grad_data();

  /// Did an update since the last applied step or `zero_grad` find a gradient that is not finite?
  bool overflow() const;

  /// The scale; setting it leaves the count of clean passes.
  double loss_scale() const;
  void set_loss_scale(double scale);

  /// The optimizer's groups: they hold the masters.
  std::vector<torch::optim::OptimizerParamGroup>& param_groups();

  /// Masters, the optimizer's state in float, scale and counters. The network is saved by itself,
  /// in any order; a resumed training is the same to the last bit, and after a save between an
  /// overflow and its step that step is skipped. `load` throws Error for a file of another
  /// optimizer or network, naming both; nothing is changed then.
  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// torch::save(optimizer, path) and torch::load(optimizer, path).
MEZZO_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                      const FP16_Optimizer& optimizer);
MEZZO_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                     FP16_Optimizer& optimizer);

/// A static scale, for loops without optimizer wrapper.
class MEZZO_API LossScaler {
 public:
  /// Throws ConfigError unless `scale` is a positive number that float can hold.
  explicit LossScaler(double scale = 1);

  /// The scale now.
  double loss_scale() const noexcept { return scale_; }

  /// Always false: a static scale looks at nothing.
  bool has_overflow(const std::vector<at::Tensor>& params);

  /// Nothing: it is static.
  void update_scale(bool overflow);

  /// Backward from loss * scale, in float at least.
  void backward(const at::Tensor& loss, bool retain_graph = false);

  /// gradient * scale, in the gradient's type.
  at::Tensor scale_gradient(const at::Tensor& gradient);

 private:
  double scale_;
};

/// A scale that moves at each `update_scale`: the loop asks `has_overflow`, updates, and divides
/// the gradients by the scale that it scaled with.
class MEZZO_API DynamicLossScaler {
 public:
  /// Throws ConfigError for a scale outside of 1 to 2^127, a factor not above 1, a window below 1.
  explicit DynamicLossScaler(double init_scale = 4294967296.0, double scale_factor = 2.0,
                             int scale_window = 1000);

  /// The scale now.
  double loss_scale() const noexcept { return scale_; }

  /// Is a gradient of these parameters infinite or not a number? Reads their devices.
  bool has_overflow(const std::vector<at::Tensor>& params);

  /// One pass: divided by the factor after an overflow, not below 1; multiplied by it after
  /// `scale_window` clean passes in a row.
  void update_scale(bool overflow);

  /// Backward from loss * scale, in float at least.
  void backward(const at::Tensor& loss, bool retain_graph = false);

  /// gradient * scale, in the gradient's type.
  at::Tensor scale_gradient(const at::Tensor& gradient);

 private:
  double scale_;
  double factor_;
  int window_;
  std::int64_t clean_ = 0;  // passes since the last overflow or growth
};

/// The parameters of a network that need gradients, and float masters for them. With `flat_master`
/// the second list has one master of one dimension, which holds all of them in order, and has a
/// gradient; all parameters must then have one type and device: otherwise ConfigError.
MEZZO_API std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> prep_param_lists(
    torch::nn::Module& module, bool flat_master = false);

/// Gives the masters the network's gradients, in the masters' type; nothing is added up. A
/// parameter without gradient leaves its master without one (zeros in a flat one). Throws
/// ConfigError for lists that do not fit each other.
MEZZO_API void model_grads_to_master_grads(const std::vector<at::Tensor>& model,
                                           const std::vector<at::Tensor>& master,
                                           bool flat_master = false);

/// Gives the network the masters' values. Throws ConfigError for lists that do not fit.
MEZZO_API void master_params_to_model_params(const std::vector<at::Tensor>& model,
                                             const std::vector<at::Tensor>& master,
                                             bool flat_master = false);

/// The first element. Reads the device; throws ConfigError if there is none.
MEZZO_API double to_python_float(const at::Tensor& tensor);

}  // namespace mezzo::fp16_utils
