// mezzo/parallel.h: the same model in many processes, each on its share of the data.
//
//   parallel::init_process_group();
//   parallel::DistributedDataParallel ddp(net);          // weights become rank 0's
//   loss(ddp(data)).backward();                          // gradients are averaged meanwhile
//   optimizer.step();                                    // the same step on every rank
//
// Start it with `mezzo launch`, torchrun, mpirun or srun.
#pragma once

#include <torch/csrc/api/include/torch/ordered_dict.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/process_group.h"
#include "mezzo/sync_batch_norm.h"

namespace mezzo::parallel {

/// How gradients are grouped, sent and averaged.
struct DDPOptions {
  /// Elements, not bytes, after which a bucket is sent.
  std::int64_t message_size = 10'000'000;

  /// All is sent at the end of the backward, a bucket per type.
  bool delay_allreduce = false;

  /// A bucket is sent when one of these has its gradient; message_size is ignored then.
  std::vector<at::Tensor> allreduce_trigger_params = {};

  /// allreduce_buffers() shows the flat averaged gradients.
  bool retain_allreduce_buffers = false;

  /// Low-precision gradients travel as float.
  bool allreduce_always_fp32 = false;

  /// false: the sum; then one synchronised backward per step.
  bool gradient_average = true;

  /// f: times 1/f before the sum, f/size after it (nothing after a sum).
  double gradient_predivide_factor = 1.0;

  /// Buckets take turns on so many connections,
  int num_allreduce_streams = 1;

  /// or on these: one group per stream, more than one.
  std::vector<ProcessGroup> allreduce_communicators = {};

  /// false: a parameter without gradient on some rank is an error.
  bool find_unused_parameters = true;

  /// Rank 0's buffers (inside join(): those of the lowest rank that has data) go to all before
  /// every training forward.
  bool broadcast_buffers = true;

  /// The ranks that average gradients; default: all of them.
  std::optional<ProcessGroup> process_group = {};
};

/// The argument of a communication hook: a bucket's gradients in one contiguous tensor, replaced by
/// their average in place; between them lie zeros, which stay zero.
struct GradientBucket {
  int index = 0;
  int count = 1;  ///< of buckets
  at::Tensor gradients;
};

/// Called for each bucket in the same order on every rank, during the backward: it starts the
/// communication and returns what to do at the end of the backward (wait, write the result; may be
/// null if all is done). All ranks set the same hook. How gradients travel and are averaged is
/// then its business alone, whatever the options say. An exception in it ends the process group.
using CommHook = std::function<std::function<void()>(const GradientBucket&, const ProcessGroup&)>;

/// Half or bfloat16 on the wire for float gradients.
MEZZO_API CommHook compress_fp16();
MEZZO_API CommHook compress_bf16();

/// Counts of this rank's work so far.
struct DDPStatistics {
  std::int64_t reductions = 0;    ///< backwards whose gradients were averaged
  std::int64_t buckets = 0;       ///< of the plan in force
  std::int64_t bytes_sent = 0;    ///< given to collectives, in the type that travels
  std::int64_t copied_bytes = 0;  ///< gradients that were not in their bucket already
};

namespace detail {

struct NamedTensors {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

/// The state that a level keeps beside a model's weights; all empty for a plain module.
struct LevelState {
  std::function<NamedTensors()> masters = {};    // the float masters of low-precision weights
  std::function<void()> publish_masters = {};    // rounds what was written to them into the weights
  std::function<at::Tensor()> loss_scales = {};  // a row for each loss
  std::function<void(const at::Tensor&)> set_loss_scales = {};
};

/// The part of DistributedDataParallel that does not depend on the module's type.
class MEZZO_API DataParallel {
 public:
  DataParallel(NamedTensors parameters, NamedTensors buffers, LevelState level, DDPOptions options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void before_forward(bool training);
  void pause();
  void resume();
  void set_enabled(bool enabled);
  void open_join(bool divide_by_active);
  void close_join();
  void set_hook(CommHook hook);
  void compress(at::ScalarType type);
  void finish_backward();
  void zero_grad(bool set_to_none);
  std::vector<at::Tensor> buffers() const;
  DDPStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class Dictionary>
NamedTensors listed(const Dictionary& dictionary) {
  NamedTensors all;
  for (const auto& item : dictionary) {
    all.names.push_back(item.key());
    all.tensors.push_back(item.value());
  }
  return all;
}

/// An amp::Model keeps masters and loss scales.
template <class Net>
concept UnderLevel = requires(const Net& net) {
  net.named_masters();
};

template <class Net>
LevelState level_of(const Net& net) {
  if constexpr (UnderLevel<Net>) {
    return {[net] { return listed(net.named_masters()); }, [net] { net.publish_masters(); },
            [net] { return net.loss_scales(); },
            [net](const at::Tensor& scales) { net.set_loss_scales(scales); }};
  } else {
    return {};
  }
}

}  // namespace detail

/// While it lives, gradients are accumulated and not averaged; the next backward after it averages
/// what was accumulated.
class [[nodiscard]] NoSyncGuard {
 public:
  explicit NoSyncGuard(std::shared_ptr<detail::DataParallel> core) : core_(std::move(core)) {
    core_->pause();
  }
  ~NoSyncGuard() {
    if (core_ != nullptr) core_->resume();
  }
  NoSyncGuard(NoSyncGuard&&) = default;
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  std::shared_ptr<detail::DataParallel> core_;
};

/// Around a loop over batches of which some ranks have fewer: a rank that comes to its end takes
/// part in the others' collectives (buffers, gradients, overflow flags, batch norms) with zeros
/// until they end too, and then everybody has the weights, buffers and loss scales of a rank that
/// went on to the end. Optimizer state stays each rank's own: make it equal before training goes on
/// (docs/distributed.md). Several models: a guard each; the first that closes ends the loop for all
/// of them. Where ranks do different things an error ends the loop for all; those that go on are
/// made equal by the next training forward, finish_backward() or join() of each model.
class [[nodiscard]] JoinGuard {
 public:
  JoinGuard(std::shared_ptr<detail::DataParallel> core, bool divide_by_active)
      : core_(std::move(core)) {
    core_->open_join(divide_by_active);
  }
  /// Waits for the other ranks; throws what went wrong. The destructor does the same, silently.
  void close() {
    if (const auto core = std::exchange(core_, nullptr)) core->close_join();
  }
  ~JoinGuard() {
    try {
      close();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the next collective says it again
    }
  }
  JoinGuard(JoinGuard&&) = default;
  JoinGuard(const JoinGuard&) = delete;
  JoinGuard& operator=(const JoinGuard&) = delete;

 private:
  std::shared_ptr<detail::DataParallel> core_;
};

/// A module whose gradients are averaged over the ranks of a group while they are computed.
///
/// Net: a module holder, std::shared_ptr of a module, or an amp::Model. A cheap handle: copies
/// share. At construction, which all ranks do in the same order, it checks that names, shapes,
/// types and options agree on all ranks (ConfigError that names the first difference) and gives
/// everybody rank 0's parameters, masters and buffers. Gradients become views into buckets; an
/// optimizer's zero_grad(set_to_none) costs a copy per step, zero_grad() here none. A gradient that
/// some ranks lack counts as zero there; one that all lack stays undefined. After an error in a
/// collective the process group has failed for good. One at a time averages a parameter's
/// gradients: the last that was made over it; a forward of an earlier one is a ConfigError.
template <class Net>
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Net net, DDPOptions options = {})
      : net_(std::move(net)),
        core_(std::make_shared<detail::DataParallel>(detail::listed(net_->named_parameters()),
                                                     detail::listed(net_->named_buffers()),
                                                     detail::level_of(net_), std::move(options))) {}

  /// The module's forward; what its backward leaves in the gradients is averaged over the ranks.
  template <class... Args>
  decltype(auto) forward(Args&&... args) const {
    core_->before_forward(net_->is_training());
    const detail::SynchronisedCalls synchronised;
    return net_->forward(std::forward<Args>(args)...);
  }
  /// forward().
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return forward(std::forward<Args>(args)...);
  }
  /// Any other member function, `call(&Impl::encode, x)`, or a callable that gets the module.
  template <class F, class... Args>
  decltype(auto) call(F&& function, Args&&... args) const {
    core_->before_forward(net_->is_training());
    const detail::SynchronisedCalls synchronised;
    if constexpr (requires(Net & net) { net.call(function, std::forward<Args>(args)...); }) {
      return net_.call(std::forward<F>(function), std::forward<Args>(args)...);
    } else {
      return std::invoke(std::forward<F>(function), *net_, std::forward<Args>(args)...);
    }
  }

  /// The wrapper itself, so that `ddp->forward(x)` reduces too.
  const DistributedDataParallel* operator->() const { return this; }
  /// The wrapped network; calling it reduces nothing by itself, but its gradients are still
  /// reduced.
  Net& module() const { return net_; }

  /// The module's own.
  auto parameters() const { return net_->parameters(); }
  auto named_parameters() const { return net_->named_parameters(); }
  auto buffers() const { return net_->buffers(); }
  auto named_buffers() const { return net_->named_buffers(); }
  void train(bool on = true) const { net_->train(on); }
  void eval() const { net_->eval(); }
  bool is_training() const { return net_->is_training(); }
  /// Zeroes gradients in their buckets; with `set_to_none` others, and those of frozen parameters,
  /// become undefined. For an amp::Model also gradients of masters, and those that were left
  /// scaled.
  void zero_grad(bool set_to_none = true) const {
    if constexpr (detail::UnderLevel<Net>) {
      net_.zero_grad(set_to_none);
    } else {
      core_->zero_grad(set_to_none);
    }
  }
  /// The module's own, on all ranks before the same forward.
  void to(at::Device device, bool non_blocking = false) const { net_->to(device, non_blocking); }

  /// While the guard lives, or between the two calls, gradients are not averaged but accumulate.
  NoSyncGuard no_sync() const { return NoSyncGuard(core_); }
  void disable_allreduce() const { core_->set_enabled(false); }
  void enable_allreduce() const { core_->set_enabled(true); }
  /// `divide_by_active`: averages are over the ranks that still have data, not over all.
  JoinGuard join(bool divide_by_active = false) const { return JoinGuard(core_, divide_by_active); }

  /// Sets how buckets are communicated, on all ranks at the same place: they compare it. A hook
  /// comes before a compression.
  void register_comm_hook(CommHook hook) const { core_->set_hook(std::move(hook)); }
  void compress_fp16() const { core_->compress(at::kHalf); }
  void compress_bf16() const { core_->compress(at::kBFloat16); }

  /// On a rank whose loss touches no parameter at all: takes part in the others' reduction. Under a
  /// level it stands inside the scope: `auto scaled = scale_loss(loss, optimizer)` before it.
  void finish_backward() const { core_->finish_backward(); }
  /// The flat averaged gradients, zeros between them, with retain_allreduce_buffers.
  std::vector<at::Tensor> allreduce_buffers() const { return core_->buffers(); }
  DDPStatistics statistics() const { return core_->statistics(); }

 private:
  mutable Net net_;
  std::shared_ptr<detail::DataParallel> core_;
};

}  // namespace mezzo::parallel
