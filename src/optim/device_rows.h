// The rows of a step that lie on CUDA devices, for which the CUDA kernels do everything: they read
// flag and inverse scale when they run and count the steps that were taken, so that nothing waits
// for the device.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/device.h"
#include "kernels/buffers.h"

namespace mezzo::optim {

/// Step counters on a device, one for each parameter ever stepped there. The host's counters are
/// brought up to date when somebody asks.
class DeviceCounters {
 public:
  static constexpr std::int64_t kNoOpinion = -1;

  /// Makes room, so that the next `count` addresses stay good. Overrides that were not pushed are
  /// of a step that failed, and are dropped.
  void reserve(std::size_t count, const at::Device&);
  /// Was this parameter ever stepped there?
  bool knows(const at::Tensor& param) const {
    return of_param_.find(param.unsafeGetTensorImpl()) != of_param_.end();
  }
  /// Where a parameter's counter is. `host_count` overrides it where its state is `fresh`, or where
  /// it is not what the host knew last; without an opinion a new counter begins at 1.
  std::int64_t* address(const at::Tensor& param, std::int64_t host_count, bool fresh);
  /// Writes what was overridden.
  void push();
  /// Knows no parameter any more. The memory stays: a captured graph goes on counting there.
  void forget();
  /// Reads all counters, which waits for the device.
  void pull(const std::function<void(const c10::TensorImpl*, std::int64_t)>& visit);

 private:
  struct Counter {
    std::int64_t index;
    std::int64_t known = kNoOpinion;  // what the device was given or has reported; none as yet
  };
  at::Tensor counts_;  // int64
  std::unordered_map<const c10::TensorImpl*, Counter> of_param_;
  std::vector<std::pair<Counter*, std::int64_t>> changed_;
  std::vector<at::Tensor> outgrown_;  // graphs may use them
};

/// The host's knowledge of a parameter when a step is asked for.
struct HostState {
  std::int64_t count = DeviceCounters::kNoOpinion;
  bool fresh = false;  // its state was made for this step: no counter of it counts any more
  double* running_norm = nullptr;
};

class DeviceRows {
 public:
  /// Forgets the rows and the flags, keeps the memory.
  void clear();
  /// Takes over row `index` of the step: its count becomes 0, so that the CPU's kernels pass it by.
  void add(std::size_t index, const kernels::cuda::Interface&, const at::Tensor& param,
           kernels::StepRow& row);
  bool empty() const { return rows_ == 0; }
  std::size_t size() const { return rows_; }
  bool has(std::size_t index) const { return index < has_.size() && has_[index]; }

  /// Are the steps of this parameter, row `index`, counted on its device already?
  bool counts(std::size_t index, const at::Tensor& param) const;
  /// Do steps of this parameter, row `index`, count on a device that it is not on any more?
  bool has_moved(std::size_t index, const at::Tensor& param) const;

  /// Flag and inverse scale of the step, on any device; undefined: none.
  void set_flags(const at::Tensor& found_inf, const at::Tensor& inv_scale);
  /// Sets `found_inf` (a float) to 1 if a gradient is not finite. With `norms` the norm of all
  /// gradients is kept for clipping and is what looks.
  void look(at::Tensor& found_inf, bool norms);
  /// As above, without a flag.
  void find_norm();
  /// The norm of all gradients together: a double. Undefined before it was found.
  const at::Tensor& norm() const { return norm_; }
  /// Another norm to clip by, where not all gradients are here.
  void set_norm(const at::Tensor& norm);

  /// Queues the step. `rows` are the step's, whose states and recipes are read; `host_state(index)`
  /// is asked once per row.
  template <typename Recipe>
  void step(kernels::cuda::StepFunction<Recipe> kernels::cuda::Interface::*function,
            const std::vector<Recipe>& recipes, const std::vector<kernels::StepRow>& rows,
            const std::function<HostState(std::size_t)>& host_state);

  /// Counters as they are on the device. Waits for it.
  void pull_counts(const std::function<void(const c10::TensorImpl*, std::int64_t)>& visit);
  /// The host's counters count again: a state was loaded.
  void forget_counts();

 private:
  struct Part {
    at::Device device{at::kCPU};
    const kernels::cuda::Interface* cuda = nullptr;
    bridge::CudaList step_list, look_list;
    DeviceCounters counters;
    std::vector<std::size_t> index;
    std::vector<const at::Tensor*> params;
    std::vector<std::int64_t> counts;
    std::vector<kernels::Input> gradients;
    std::vector<kernels::StepRow> rows;
    std::vector<kernels::cuda::RowState> states;
    at::Tensor skip, inv_scale, norm;
  };
  Part& part_on(const at::Device&, const kernels::cuda::Interface&);
  at::Tensor norm_of(Part&, float* found_inf);
  void prepare(Part&, const std::vector<kernels::StepRow>& rows,
               const std::function<HostState(std::size_t)>& host_state);

  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<bool> has_;
  std::size_t rows_ = 0;
  at::Tensor norm_;
};

}  // namespace mezzo::optim
