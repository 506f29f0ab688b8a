// MXNet's training with mixed precision, as its Gluon programs write it, on LibTorch's tensors.
//
//   auto handle = mezzo::gluon::init();                                        // 1
//   mezzo::gluon::Trainer trainer(*net, "sgd", {{"learning_rate", 0.001}, {"wd", 5e-4},
//   {"momentum", 0.9}}); mezzo::gluon::init_trainer(trainer); // 2 for (auto& batch : *loader) {
//     trainer.zero_grad();
//     auto loss = criterion(net->forward(batch.data), batch.target);
//     mezzo::gluon::scale_loss(loss, trainer).backward();                      // 3
//     trainer.step(1);
//   }
//
// docs/migrating_from_mxnet.md says what differs from MXNet, and why.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/gluon_metric.h"
#include "mezzo/gluon_outputs.h"
#include "mezzo/gluon_schedule.h"
#include "mezzo/loss_scale.h"
#include "mezzo/policy.h"

namespace mezzo::gluon {

using amp::LossScale;

/// Which operators are cast, by MXNet's names (LibTorch's are understood as well).
struct InitOptions {
  /// "float16" or "bfloat16".
  std::string target_dtype = "float16";

  /// Given, a list replaces the default one of its class, as in MXNet: operators that drop out run
  /// in whatever type arrives. A list of "+Op" and "-Op" edits the default one instead. An operator
  /// that is named leaves the default list that it was on. A name means every ATen operator that
  /// a program on LibTorch calls for MXNet's: "dot" also mm, mv and matmul, "batch_dot" also matmul
  /// and baddbmm unless another name on the lists has them.
  std::optional<std::vector<std::string>> target_precision_ops = {}, fp32_ops = {};
  /// Replaces MXNet's {"Activation", "act_type", {"softrelu"}}, {"LeakyReLU", "act_type", {"elu",
  /// "selu"}}.
  std::optional<std::vector<Conditional>> conditional_fp32_ops = {};

  /// Policy::defaults in place of MXNet's own lists.
  bool merged_lists = false;
};

namespace detail {
struct HandleState;
struct TrainerState;
}  // namespace detail

/// The result of `init`: casts are on for bare calls on its thread while it lives. Movable; destroy
/// it on the thread that made it (elsewhere the casts of that thread last until its next `init`).
class MEZZO_API Handle {
 public:
  explicit Handle(std::shared_ptr<detail::HandleState> state);
  Handle(Handle&& other) noexcept;
  /// Ends the casts of this handle, then takes over `other`'s.
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();

  /// The policy that operators are cast by.
  const Policy& policy() const;

 private:
  void close() noexcept;
  std::shared_ptr<detail::HandleState> state_;
};

/// Casts bare calls on this thread from now on, by MXNet's lists. The order of `init` and the
/// network does not matter: casts happen where operators run. Says "Using AMP" to the message sink
/// when it is the only handle. While one lives, the same settings give a second handle and others
/// are a ConfigError, as are unknown operators, a dtype that is neither float16 nor bfloat16, and
/// an operator on two of the given lists: by names of which one means no more than the other. Names
/// that share an ATen operator (FullyConnected and dot share matmul) may stand on two lists; it
/// runs in 16 bits.
[[nodiscard]] MEZZO_API Handle init(const InitOptions& options = {});

/// "learning_rate", "wd", "momentum", "beta1", "beta2", "epsilon" (or "eps"), "clip_gradient",
/// "rescale_grad", "gamma1", ...: the optimizer's arguments in MXNet; flags are 0 or 1.
using OptimizerParams = std::map<std::string, double>;

/// Options of a trainer beside the optimizer's own arguments.
struct TrainerOptions {
  /// Must stay false: gradients have to be checked between their sum and the update.
  bool update_on_kvstore = false;
  /// Asked at each update. An explicit "learning_rate" replaces its base_lr.
  std::shared_ptr<LRScheduler> lr_scheduler = {};
  /// Factors by parameter name.
  std::map<std::string, double> lr_mult = {}, wd_mult = {};
};

/// Sums gradients over replicas and ranks, and updates weights as MXNet 1.9.1's optimizers do
/// ("adamw": MXNet 2.x's). "sgd", "nag", "adam", "adamw", "adagrad", "rmsprop", "lamb", "signum";
/// an unknown optimizer, an unknown argument or parameter name is a ConfigError with the nearest.
/// Weights are float or double. Movable, not copyable; belongs to one training loop.
///
/// Gradients accumulate as in LibTorch: call zero_grad() once a step. In an initialized process
/// group (process_group.h) rank 0's weights go to all ranks when the trainer is made, and step(),
/// allreduce_grads() and update() are called by all ranks.
class MEZZO_API Trainer {
 public:
  Trainer(const torch::nn::Module& module, const std::string& optimizer,
          const OptimizerParams& optimizer_params = {}, TrainerOptions options = {});
  Trainer(torch::OrderedDict<std::string, at::Tensor> params, const std::string& optimizer,
          const OptimizerParams& optimizer_params = {}, TrainerOptions options = {});
  /// The same parameters once on each device; the first one's weights go to the others now and
  /// after each update.
  Trainer(std::vector<torch::OrderedDict<std::string, at::Tensor>> replicas,
          const std::string& optimizer, const OptimizerParams& optimizer_params = {},
          TrainerOptions options = {});
  /// Any optimizer of LibTorch, which must outlive the trainer: gradients are summed, divided and
  /// checked here, and its own step() moves the weights. It takes no lr_mult and wd_mult.
  explicit Trainer(torch::optim::Optimizer& optimizer, TrainerOptions options = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  /// allreduce_grads() and update(). `batch_size` divides the gradients: that of all devices and
  /// ranks together; 0, less or NaN is a ConfigError. A parameter that had no backward pass since
  /// the last applied step is an Error before anything moves; with `ignore_stale_grad` it is left
  /// alone.
  void step(double batch_size, bool ignore_stale_grad = false);

  /// Sums gradients over the replicas and the ranks; all have the sum afterwards.
  void allreduce_grads();

  /// The rest of a step: checks the gradients where the trainer has a loss scale, and updates or
  /// skips. A skip moves no weight, no state, no counter and no schedule. With several replicas:
  /// Error unless allreduce_grads() came first.
  void update(double batch_size, bool ignore_stale_grad = false);

  /// Clears the gradients of all replicas.
  void zero_grad();

  /// The rate of the next update if nothing changes, before lr_mult; with a schedule, that of the
  /// last one.
  double learning_rate() const;
  /// ConfigError beside a schedule.
  void set_learning_rate(double learning_rate);

  /// The optimizer behind it, made from the first replica's parameters, or the one it was made
  /// with.
  torch::optim::Optimizer& optimizer();

  /// The factor of the next scale_loss; 1 without init_trainer.
  double loss_scale() const;
  /// Was the last update skipped for a gradient that was not finite?
  bool last_step_skipped() const;

  /// Optimizer state, counts of updates, learning rate or the schedule's position, and the loss
  /// scale with its counter. Replaces the file whole or not at all.
  void save_states(const std::string& path) const;
  /// Takes them back. Another optimizer or other parameters are an Error, and nothing is changed. A
  /// loss scale in the file waits for init_trainer where that has not come yet.
  void load_states(const std::string& path);

  /// For the other functions of this header.
  detail::TrainerState& state() const { return *state_; }

 private:
  std::unique_ptr<detail::TrainerState> state_;
};

/// When the loss scale moves.
enum class ScaleTiming {
  kImmediate,  ///< at the step that decided it
  kMxnet,      ///< one step later, as MXNet's does
};

/// How a trainer's loss scale behaves. It halves after an overflow and doubles after `window` clean
/// updates in a row, up to `max_scale`. Its floor is 2^-14, and 50 skipped updates in a row there
/// are an Error; with ScaleTiming::kMxnet the floor is 2^-126 and nothing stops it.
struct TrainerScale {
  std::optional<LossScale> loss_scale = {};  ///< a number: it never moves; unset: dynamic
  ScaleTiming timing = ScaleTiming::kImmediate;
  double init_scale = 65536;
  double max_scale = 16777216;
  int window = 2000;
};

/// Gives the trainer a loss scale of its own, which it keeps when the handle is gone. Without a
/// live handle of `init`, or a second time on one trainer: ConfigError.
MEZZO_API void init_trainer(Trainer& trainer, TrainerScale scale = {});

/// A loss, or one for each replica, times the loss scale.
class MEZZO_API ScaledLoss {
 public:
  explicit ScaledLoss(std::vector<at::Tensor> losses) : losses_(std::move(losses)) {}

  /// Backward from all of them; losses that are not scalars get a gradient of ones, as in MXNet.
  void backward(bool retain_graph = false, bool create_graph = false);

  /// The scaled loss, in float at least; Error unless there is exactly one.
  const at::Tensor& value() const;
  const at::Tensor& operator*() const { return value(); }
  const std::vector<at::Tensor>& values() const { return losses_; }

 private:
  std::vector<at::Tensor> losses_;
};

/// Scales a loss for the trainer, whose next step divides by the scale. Several in a row before one
/// step add up. Without init_trainer, and for a loss that autograd does not record: ConfigError.
[[nodiscard]] MEZZO_API ScaledLoss scale_loss(const at::Tensor& loss, Trainer& trainer);
[[nodiscard]] MEZZO_API ScaledLoss scale_loss(const std::vector<at::Tensor>& losses,
                                              Trainer& trainer);

/// Divides the gradients by the loss scale now, for clipping: backward, allreduce_grads(),
/// unscale(), clip, update(). Again without another scale_loss: nothing. Gradients that are not
/// finite stay so, and update() still sees them. Without init_trainer: ConfigError.
MEZZO_API void unscale(Trainer& trainer);

/// Cuts a batch along `batch_axis` into a part for each device; with `even_split`, sizes that are
/// no multiple are a ConfigError, without it the first parts are one larger. Fewer rows than
/// devices: ConfigError.
MEZZO_API std::vector<at::Tensor> split_and_load(const at::Tensor& data,
                                                 const std::vector<at::Device>& devices,
                                                 std::int64_t batch_axis = 0,
                                                 bool even_split = true);

}  // namespace mezzo::gluon
