// The weights and buffers that live in another type than the caller gave them, with their float
// masters.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/split_masters.h"
#include "core/torch.h"

namespace mezzo::amp::detail {

/// Bits of the first, the middle and the last value of a tensor; zeros for one that no host can
/// read.
using Samples = std::array<std::uint32_t, 3>;
Samples samples_of(const at::Tensor& tensor);

/// A tensor of a model whose type we chose, or that has a master.
struct Weight {
  at::Tensor tensor;
  at::Tensor master;        // float leaf that the optimizer steps; undefined: none
  at::ScalarType kept;      // the type it has under the level
  at::ScalarType original;  // the type it gets back at the end
  std::string name;
  bridge::SplitRest rest = {};  // defined: the master has no memory, tensor and this are its values

  // How it looked when tensor and master last agreed.
  std::uint32_t version = 0;
  std::uint32_t master_version = 0;
  const c10::StorageImpl* storage = nullptr;
  // Bits of single values of both, on hosts: what is written through data() moves no version.
  Samples samples = {};
  Samples master_samples = {};

  bool is_split() const { return rest.defined(); }
};

/// A master's values, float and detached: its own memory, or a new tensor where it is split.
at::Tensor master_value(const Weight& weight);

/// Note [Split masters in training]: with Options::split_masters a master is a tensor without
/// memory that is listed, keyed and given gradients like any other; a fused step reads and writes
/// the weight and `rest` in its place. Code that writes the master, or hands it out, gives it
/// memory first (give_memory), and training goes on with it as at any level with masters. At the
/// end of each step masters that nobody has written since are split again (split_master).
void give_memory(Weight& weight);
/// Not if master or weight were written and nobody has said so yet, nor if the kernels cannot.
void split_master(Weight& weight);

/// Keeps tensors and masters in agreement whoever writes.
///
/// Note [Writes from outside]: the caller may write weights after `initialize`, and torch::load on
/// a bare half module replaces a tensor's storage by the file's float bytes without changing its
/// type. Version counter and storage show it; the values then go to the master, and the tensor gets
/// its type again. Low values that the master rounds to leave it as it is. Writes through data()
/// move no version: `absorb` compares single values, on hosts, and all values of all weights once
/// it has found such a write; `absorb_values` compares all. A split master has no values to compare
/// with: of a tensor that was written it takes all values, and elsewhere it keeps what stands
/// beside the weight.
///
/// Threads: `absorb` may run in several threads at once; everything else belongs to the training
/// loop.
class WeightTable {
 public:
  /// Adds a tensor whose values are those of the master, if there is one.
  Weight& add(Weight weight);

  Weight* find(const at::Tensor& tensor);

  /// Values that were written from outside reach the masters. Were some written through data()?
  /// Throws Error where a tensor's bytes cannot be understood.
  bool absorb();

  /// Compares all values of these tensors with what their masters round to; the masters take what
  /// differs. Not where a master was written: it is newer.
  void absorb_values(const std::vector<at::Tensor>& tensors);
  /// As above, for all tensors: before their values leave, into a file or to the caller.
  void absorb_all_values();

  /// The masters' values go to these of their tensors, in one pass.
  void publish(const std::vector<Weight*>& weights);

  /// Was the master, or the tensor, written since they last agreed? On CPUs single values are
  /// compared as well, since some optimizers and programs write without moving version counters.
  static bool master_was_written(const Weight& weight);
  static bool tensor_was_written(const Weight& weight);
  /// Both were written, and nothing says which is newer.
  static bool is_torn(const Weight& weight);

  /// The tensor was written by us: what it holds now agrees with its master.
  static void agree(Weight& weight);

  /// Every tensor gets its original type back, with the master's values if there is one.
  void restore();

  std::vector<Weight*> all();

 private:
  void absorb_one(Weight& weight);
  void absorb_differences(const std::vector<Weight*>& weights);
  bool shares_storage(const Weight& weight) const;

  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Weight> weights_;
};

}  // namespace mezzo::amp::detail
