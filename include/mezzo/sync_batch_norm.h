// mezzo/sync_batch_norm.h: batch norm over the batches of all ranks (part of mezzo/parallel.h).
//
//   parallel::SyncBatchNorm norm(parallel::SyncBatchNormOptions{.num_features = 64});
//   auto net = parallel::convert_syncbn_model(Net());        // or in a network that exists
//
// Statistics are those of all ranks' elements together, whatever their numbers: ranks may have
// batches of different sizes, a single sample, or none. One collective in the forward, one in the
// backward. The gradients of weight and bias are this rank's; DistributedDataParallel averages
// them as it does with all others.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <type_traits>

#include "mezzo/export.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {

/// Options of SyncBatchNorm; the first five as torch::nn::BatchNormOptions has them.
struct SyncBatchNormOptions {
  std::int64_t num_features = 0;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: the running statistics are the average of all
  bool affine = true;
  bool track_running_stats = true;
  std::optional<ProcessGroup> process_group = {};  // default: all ranks
  bool channel_last = false;  // channels are the input's last dimension, as in (N, H, W, C)
  bool fuse_relu = false;     // the result is max(0, norm + z)
};

namespace detail {
/// The parameters and buffers of a batch norm.
struct BatchNormTensors {
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
}  // namespace detail

/// Batch normalisation (Ioffe and Szegedy 2015) whose statistics are over all ranks of a group.
/// Input: (N, C) to (N, C, D, H, W), or (C) for one sample, of float, half, bfloat16 or double in
/// any memory layout; the result has its type and layout. Statistics are summed in float (double
/// for double) and merged in double. All ranks of the group call forward, and backward if one does,
/// with the same layers in the same order. Without a process group, in a group of one, and in
/// evaluation with running statistics it is torch::nn::BatchNorm, whose fields and state names it
/// has. Throws ConfigError for other inputs, and on all ranks where a channel has only one element
/// in the whole group.
class MEZZO_API SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(SyncBatchNormOptions given);
  explicit SyncBatchNormImpl(std::int64_t num_features);
  /// Over tensors that exist.
  SyncBatchNormImpl(SyncBatchNormOptions given, const detail::BatchNormTensors& tensors);

  /// As of torch::nn::BatchNorm: weight one, bias zero; mean zero, variance one, count zero.
  void reset() override;
  void reset_parameters();
  void reset_running_stats();
  void pretty_print(std::ostream& stream) const override;

  /// `z`, of the input's shape, is added to the norm, before the ReLU if there is one.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& z = {});

  SyncBatchNormOptions options;
  at::Tensor weight, bias;               // undefined unless affine
  at::Tensor running_mean, running_var;  // undefined unless track_running_stats
  at::Tensor num_batches_tracked;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})

 private:
  void adopt(const detail::BatchNormTensors& tensors);
};
/// A holder of SyncBatchNormImpl.
TORCH_MODULE(SyncBatchNorm);

namespace detail {

/// Converts what is below a module, and marks the module itself if it is a batch norm.
MEZZO_API void convert_batch_norms(torch::nn::Module& root,
                                   const std::optional<ProcessGroup>& group, bool channel_last);
/// A synchronised batch norm over the same tensors; null if the module is none.
MEZZO_API std::shared_ptr<SyncBatchNormImpl> synchronised(const torch::nn::Module& module,
                                                          const std::optional<ProcessGroup>& group,
                                                          bool channel_last);

/// While it lives, marked batch norms that this thread calls run synchronised. Nests.
class MEZZO_API SynchronisedCalls {
 public:
  [[nodiscard]] SynchronisedCalls();
  ~SynchronisedCalls();
  SynchronisedCalls(const SynchronisedCalls&) = delete;
  SynchronisedCalls& operator=(const SynchronisedCalls&) = delete;

 private:
  bool switched_ = false;
};

}  // namespace detail

/// Makes the batch norms of a network synchronised, in place, and returns it. Those in containers
/// (Sequential, ModuleList, ModuleDict, at any depth) become SyncBatchNorm over the same tensors,
/// so that optimizers keep their parameters. A module's typed field (`torch::nn::BatchNorm2d bn`)
/// cannot be replaced from outside: it is marked, and runs synchronised inside calls of amp::Model
/// and DistributedDataParallel; calling the bare network stays local. Marks follow the running
/// mean, else the weight; clones are not marked. Throws ConfigError, and changes nothing, if a
/// field has neither: the message names it.
///
/// Net: a module holder, std::shared_ptr of a module, or torch::nn::AnyModule; the last, and
/// std::shared_ptr<torch::nn::Module>, are themselves replaced where they hold a batch norm.
template <class Net>
Net convert_syncbn_model(Net net, const std::optional<ProcessGroup>& process_group = {},
                         bool channel_last = false) {
  if constexpr (std::is_same_v<Net, torch::nn::AnyModule>) {
    const std::shared_ptr<torch::nn::Module> module = net.ptr();
    if (auto norm = detail::synchronised(*module, process_group, channel_last)) return Net(norm);
    detail::convert_batch_norms(*module, process_group, channel_last);
  } else if constexpr (std::is_same_v<Net, std::shared_ptr<torch::nn::Module>>) {
    if (auto norm = detail::synchronised(*net, process_group, channel_last)) return norm;
    detail::convert_batch_norms(*net, process_group, channel_last);
  } else {
    detail::convert_batch_norms(*net, process_group, channel_last);
  }
  return net;
}

/// Groups of `group_size` neighbouring ranks; returns this process's own, or nothing (all ranks)
/// for 0. All ranks call it. Throws ConfigError unless the number of ranks is a multiple of it.
MEZZO_API std::optional<ProcessGroup> create_syncbn_process_group(int group_size);

}  // namespace mezzo::parallel
