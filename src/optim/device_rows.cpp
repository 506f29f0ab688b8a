#include "optim/device_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/cuda_library.h"

namespace mezzo::optim {
namespace {

// Pageable memory is staged before the call returns: nobody waits for the copy.
at::Tensor numbers(std::vector<std::int64_t>& values, const at::Device& device) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kLong)
      .to(device, at::kLong, /*non_blocking=*/true, /*copy=*/true);
}

// A flag or scale as the kernels read it; the same tensor where it is that already. Pinned memory
// is waited for: its owner may write it again before the device has read it.
at::Tensor number_on(const at::Tensor& tensor, const at::Device& device, at::ScalarType type) {
  if (!tensor.defined()) return tensor;
  const bool waits = tensor.is_cpu() && device.is_cuda() && tensor.is_pinned();
  return tensor.detach().to(device, type, /*non_blocking=*/!waits);
}

template <typename T>
const T* address_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

}  // namespace

void DeviceCounters::reserve(std::size_t count, const at::Device& device) {
  changed_.clear();
  const auto needed = static_cast<std::int64_t>(of_param_.size() + count);
  if (counts_.defined() && counts_.numel() >= needed) return;
  at::Tensor larger = at::zeros({2 * needed}, at::TensorOptions(device).dtype(at::kLong));
  if (counts_.defined()) {
    larger.narrow(0, 0, counts_.numel()).copy_(counts_);
    outgrown_.push_back(counts_);
  }
  counts_ = larger;
}

std::int64_t* DeviceCounters::address(const at::Tensor& param, std::int64_t host_count,
                                      bool fresh) {
  const auto next = static_cast<std::int64_t>(of_param_.size());
  Counter& counter =
      of_param_.try_emplace(param.unsafeGetTensorImpl(), Counter{next}).first->second;
  if (counter.known == kNoOpinion && host_count == kNoOpinion) host_count = 1;
  if (host_count != kNoOpinion && (fresh || host_count != counter.known)) {
    changed_.emplace_back(&counter, host_count);
  }
  return counts_.mutable_data_ptr<std::int64_t>() + counter.index;
}

void DeviceCounters::push() {
  if (changed_.empty()) return;
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> values;
  for (const auto& [counter, value] : changed_) {
    indices.push_back(counter->index);
    values.push_back(value);
  }
  counts_.index_copy_(0, numbers(indices, counts_.device()), numbers(values, counts_.device()));
  for (auto& [counter, value] : changed_) counter->known = value;
  changed_.clear();
}

void DeviceCounters::forget() {
  if (counts_.defined()) outgrown_.push_back(std::exchange(counts_, {}));
  of_param_.clear();
  changed_.clear();
}

void DeviceCounters::pull(const std::function<void(const c10::TensorImpl*, std::int64_t)>& visit) {
  if (of_param_.empty()) return;
  const at::Tensor counts = counts_.to(at::kCPU);
  for (auto& [param, counter] : of_param_) {
    if (counter.known == kNoOpinion) continue;  // its first step failed before it was counted
    counter.known = counts.const_data_ptr<std::int64_t>()[counter.index];
    visit(param, counter.known);
  }
}

void DeviceRows::clear() {
  for (auto& part : parts_) {
    part->index.clear();
    part->params.clear();
    part->counts.clear();
    part->gradients.clear();
    part->skip.reset();
    part->inv_scale.reset();
    part->norm.reset();
  }
  has_.clear();
  rows_ = 0;
  norm_.reset();
}

DeviceRows::Part& DeviceRows::part_on(const at::Device& device,
                                      const kernels::cuda::Interface& cuda) {
  for (auto& part : parts_) {
    if (part->device == device) return *part;
  }
  Part& part = *parts_.emplace_back(std::make_unique<Part>());
  part.device = device;
  part.cuda = &cuda;
  part.step_list = bridge::make_cuda_list(cuda, device);
  part.look_list = bridge::make_cuda_list(cuda, device);
  return part;
}

void DeviceRows::add(std::size_t index, const kernels::cuda::Interface& cuda,
                     const at::Tensor& param, kernels::StepRow& row) {
  Part& part = part_on(param.device(), cuda);
  part.index.push_back(index);
  part.params.push_back(&param);
  part.counts.push_back(row.count);
  part.gradients.push_back({row.grad, row.grad_dtype, row.count});
  has_.resize(index + 1);
  has_[index] = true;
  row.count = 0;
  ++rows_;
}

bool DeviceRows::counts(std::size_t index, const at::Tensor& param) const {
  return has(index) &&
         std::any_of(parts_.begin(), parts_.end(), [&](const std::unique_ptr<Part>& part) {
           return part->device == param.device() && part->counters.knows(param);
         });
}

bool DeviceRows::has_moved(std::size_t index, const at::Tensor& param) const {
  const bool here = has(index);
  return std::any_of(parts_.begin(), parts_.end(), [&](const std::unique_ptr<Part>& part) {
    return !(here && part->device == param.device()) && part->counters.knows(param);
  });
}

void DeviceRows::set_flags(const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  for (auto& part : parts_) {
    part->skip = number_on(found_inf, part->device, at::kFloat);
    part->inv_scale = number_on(inv_scale, part->device, at::kFloat);
  }
}

at::Tensor DeviceRows::norm_of(Part& part, float* found_inf) {
  at::Tensor norm = at::empty({}, at::TensorOptions(part.device).dtype(at::kDouble));
  const bool done = part.cuda->norm(part.look_list.get(), part.gradients.data(),
                                    static_cast<std::int64_t>(part.gradients.size()),
                                    /*largest=*/false, norm.mutable_data_ptr<double>(), nullptr,
                                    found_inf, bridge::current_stream(part.device));
  kernels::check_cuda(*part.cuda, done, "gradient norm");
  return norm;
}

void DeviceRows::look(at::Tensor& found_inf, bool norms) {
  at::Tensor squares;
  for (auto& part : parts_) {
    if (part->index.empty()) continue;
    bridge::DeviceFlag flag(found_inf, part->device);
    // The norm of doubles overflows where they do not.
    const bool looks = !norms || std::any_of(part->gradients.begin(), part->gradients.end(),
                                             [](const kernels::Input& gradient) {
                                               return gradient.dtype == DType::kFloat64;
                                             });
    if (norms) {
      const at::Tensor square = norm_of(*part, looks ? nullptr : flag.address()).square();
      squares = squares.defined() ? squares.add(square.to(squares.device())) : square;
    }
    if (looks) {
      const bool done = part->cuda->check(part->look_list.get(), part->gradients.data(),
                                          static_cast<std::int64_t>(part->gradients.size()),
                                          flag.address(), bridge::current_stream(part->device));
      kernels::check_cuda(*part->cuda, done, "finite check");
    }
    flag.merge();
  }
  if (squares.defined()) set_norm(squares.sqrt());
}

void DeviceRows::find_norm() {
  at::Tensor squares;
  for (auto& part : parts_) {
    if (part->index.empty()) continue;
    const at::Tensor square = norm_of(*part, nullptr).square();
    squares = squares.defined() ? squares.add(square.to(squares.device())) : square;
  }
  if (squares.defined()) set_norm(squares.sqrt());
}

void DeviceRows::set_norm(const at::Tensor& norm) {
  norm_ = norm;
  for (auto& part : parts_) part->norm = number_on(norm, part->device, at::kDouble);
}

void DeviceRows::prepare(Part& part, const std::vector<kernels::StepRow>& rows,
                         const std::function<HostState(std::size_t)>& host_state) {
  part.rows.clear();
  part.states.clear();
  part.counters.reserve(part.index.size(), part.device);
  for (std::size_t k = 0; k < part.index.size(); ++k) {
    part.rows.push_back(rows[part.index[k]]);
    part.rows.back().count = part.counts[k];
    const HostState state = host_state(part.index[k]);
    part.states.push_back(
        {part.counters.address(*part.params[k], state.count, state.fresh), state.running_norm});
  }
  part.counters.push();
}

template <typename Recipe>
void DeviceRows::step(kernels::cuda::StepFunction<Recipe> kernels::cuda::Interface::*function,
                      const std::vector<Recipe>& recipes, const std::vector<kernels::StepRow>& rows,
                      const std::function<HostState(std::size_t)>& host_state) {
  for (auto& part : parts_) {
    if (part->index.empty()) continue;
    prepare(*part, rows, host_state);
    const kernels::cuda::StepFlags flags{address_of<float>(part->skip),
                                         address_of<float>(part->inv_scale),
                                         address_of<double>(part->norm)};
    const bool done = (part->cuda->*function)(
        part->step_list.get(), part->rows.data(), part->states.data(),
        static_cast<std::int64_t>(part->rows.size()), recipes.data(),
        static_cast<std::int64_t>(recipes.size()), flags, bridge::current_stream(part->device));
    kernels::check_cuda(*part->cuda, done, "step");
  }
}

void DeviceRows::pull_counts(
    const std::function<void(const c10::TensorImpl*, std::int64_t)>& visit) {
  for (auto& part : parts_) part->counters.pull(visit);
}

void DeviceRows::forget_counts() {
  for (auto& part : parts_) part->counters.forget();
}

template <typename Recipe>
using StepOf = kernels::cuda::StepFunction<Recipe> kernels::cuda::Interface::*;
using HostStates = std::function<HostState(std::size_t)>;
using StepRows = std::vector<kernels::StepRow>;
template void DeviceRows::step(StepOf<kernels::AdamRecipe>, const std::vector<kernels::AdamRecipe>&,
                               const StepRows&, const HostStates&);
template void DeviceRows::step(StepOf<kernels::SgdRecipe>, const std::vector<kernels::SgdRecipe>&,
                               const StepRows&, const HostStates&);
template void DeviceRows::step(StepOf<kernels::AdagradRecipe>,
                               const std::vector<kernels::AdagradRecipe>&, const StepRows&,
                               const HostStates&);
template void DeviceRows::step(StepOf<kernels::LambRecipe>, const std::vector<kernels::LambRecipe>&,
                               const StepRows&, const HostStates&);
template void DeviceRows::step(StepOf<kernels::NovogradRecipe>,
                               const std::vector<kernels::NovogradRecipe>&, const StepRows&,
                               const HostStates&);

}  // namespace mezzo::optim
