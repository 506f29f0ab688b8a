// mezzo/process_group.h: many processes that train one model.
//
// A process calls init_process_group() once, after a starter (mezzo launch, torchrun, mpirun,
// srun) gave it a rank. The transport is LibTorch's own: Gloo between CPUs, NCCL between GPUs where
// its library is found. Every function here is called by all ranks of a group in the same order;
// one that is missing makes the others fail with an error after the timeout, which names it.
//
// Threads: one thread per process may call collectives of one group at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/error.h"
#include "mezzo/export.h"

namespace mezzo::parallel {

namespace detail {
class Group;
}

/// How this process finds its peers.
struct InitOptions {
  /// "gloo", "nccl" (with Gloo for CPU tensors), or "auto": NCCL where every rank has its library
  /// and a GPU of its own, which is the one of its local rank. With Gloo, tensors of GPUs travel by
  /// way of the host.
  std::string backend = "auto";

  /// "env://": the starter's variables; "tcp://HOST:PORT" or "file:///PATH".
  std::string init_method = "env://";

  /// The limit for start-up and for every collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);

  /// With tcp:// and file://; default: what the starter's variables say.
  std::optional<int> rank = {};
  std::optional<int> world_size = {};

  /// Compare operation, size and dtype between ranks before each call.
  bool check_collectives = false;
};

/// Connects this process with its peers. Throws ConfigError for impossible options or variables,
/// Error if the peers cannot be reached within the timeout (the message names the ranks that
/// are missing), UnsupportedError if this build has no distributed part. If the program has
/// no handler for SIGPIPE it is ignored from then on, as Python's programs ignore it: a peer that
/// dies is then an error and not the end of this process.
MEZZO_API void init_process_group(const InitOptions& options = {});

/// Was init_process_group() called, and destroy_process_group() not since?
MEZZO_API bool is_initialized();

/// This process's rank and the number of ranks. Without a process group: Error.
MEZZO_API int rank();
MEZZO_API int world_size();

/// The rank on this machine, for the choice of a device; as rank() where the starter does not say.
MEZZO_API int local_rank();

/// Waits for all ranks.
MEZZO_API void barrier();

/// Leaves the group. Handles that are left raise errors. Without a process group: nothing.
MEZZO_API void destroy_process_group();

/// How all_reduce() combines the ranks' values, element by element.
enum class ReduceOp { kSum, kAverage, kMax, kMin };

/// Some or all of the ranks; a cheap handle, copies share. Collectives take dense tensors of one
/// shape and dtype on all ranks, copy views with gaps, and move the versions of what they write.
class MEZZO_API ProcessGroup {
 public:
  explicit ProcessGroup(std::shared_ptr<detail::Group> group);

  /// This process's rank in the group; -1 if it is no member, and then every collective is an
  /// Error.
  int rank() const;
  int size() const;
  /// The members, as ranks of the whole.
  const std::vector<int>& ranks() const;
  bool is_member() const { return rank() >= 0; }

  /// In place, on all ranks. Averages of half and bfloat16 are summed in float and rounded once.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// In place: `root`'s values (a rank of the group) on all.
  void broadcast(const at::Tensor& tensor, int root = 0) const;
  /// Shape [size, ...]: what every rank gave.
  at::Tensor all_gather(const at::Tensor& tensor) const;
  void barrier() const;

  /// Operations that this process started in this group so far, and the bytes it gave to them.
  struct Counts {
    std::int64_t collectives = 0;
    std::int64_t bytes = 0;
  };
  /// Counted since the group was made.
  Counts counts() const;

  /// For the other parts of this library.
  detail::Group& internals() const { return *group_; }
  /// Handles of the same group.
  friend bool operator==(const ProcessGroup& a, const ProcessGroup& b) {
    return a.group_ == b.group_;
  }

 private:
  std::shared_ptr<detail::Group> group_;
};

/// All ranks.
MEZZO_API ProcessGroup world();

/// A group of these ranks (each once, in the order of the new ranks). Every rank of the whole calls
/// this, members or not, in the same order.
MEZZO_API ProcessGroup new_group(const std::vector<int>& ranks);

/// Averages in place over the group, grouped by type into flat buffers: one collective per type.
MEZZO_API void all_reduce_average(const std::vector<at::Tensor>& tensors,
                                  const std::optional<ProcessGroup>& group = {});

/// Gives everybody `root`'s values, grouped by type into flat buffers.
MEZZO_API void broadcast_all(const std::vector<at::Tensor>& tensors, int root = 0,
                             const std::optional<ProcessGroup>& group = {});

/// Compares named tensors between the ranks, bit by bit, in one small collective where they are
/// equal: a sum of each tensor's bytes travels (from GPUs by way of the host). Otherwise every rank
/// throws Error that names the first tensor that differs, and the ranks (of the whole) that hold
/// something else than most do. Ranks that have left a join() are not compared.
MEZZO_API void expect_equal(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                            const std::optional<ProcessGroup>& group = {});

/// Averages gradients when asked, without hooks: for loops that accumulate, or that want to see
/// the gradients first.
class MEZZO_API Reducer {
 public:
  /// Parameters (leaves that require gradients; rank 0's values go to all ranks at once, and
  /// `reduce` averages their gradients) or plain tensors (which `reduce` averages themselves).
  /// Which of both a tensor is stays as it was here: one that is frozen later is a parameter still,
  /// and its weights are left alone, as Apex's Reducer does; one that is frozen now would be
  /// averaged itself, and is better left out.
  explicit Reducer(std::vector<at::Tensor> tensors, std::optional<ProcessGroup> group = {});
  /// Averages in place. A gradient that some ranks lack counts as zero there and is defined
  /// afterwards; one that all lack stays undefined.
  void reduce();

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<bool> is_parameter_;
  std::optional<ProcessGroup> group_;
};

}  // namespace mezzo::parallel
