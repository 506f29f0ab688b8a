#include "bridge/multi_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "bridge/device.h"
#include "bridge/list_operators.h"
#include "bridge/overlap.h"
#include "bridge/tensors.h"
#include "bridge/workers.h"
#include "kernels/cuda_library.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace mezzo::bridge {
namespace {

std::string nth(const char* list, std::size_t i) {
  return std::string(list) + '[' + std::to_string(i) + ']';
}

// Lists of tensors as kernel buffers. Where a tensor is not dense, or not laid out as the output it
// belongs to, a dense copy stands for it until write_back().
class Buffers {
 public:
  explicit Buffers(std::string_view where) : where_(where) {}

  void add_output(const char* list, std::size_t i, const at::Tensor& tensor) {
    const DType dtype = check_kernel_tensor(where_, nth(list, i), tensor);
    check_device(list, i, tensor);
    const bool direct = is_dense(tensor);
    standins_.push_back(direct ? tensor : empty_dense(tensor));
    if (!direct) indirect_.emplace_back(tensor, standins_.back());
    outputs.push_back(output_of(standins_.back(), dtype));
    extents_.push_back({outputs.back().data, tensor.nbytes(), names_.size(), true});
    names_.push_back(nth(list, i));
    written_.push_back(tensor);
  }

  kernels::Input input(const char* list, std::size_t i, const at::Tensor& tensor,
                       const at::Tensor* like) {
    const DType dtype = check_kernel_tensor(where_, nth(list, i), tensor);
    check_device(list, i, tensor);
    if (like != nullptr && tensor.sizes() != like->sizes()) {
      raise<ConfigError>(where_, nth(list, i), " has sizes ", tensor.sizes(), ", its output ",
                         like->sizes());
    }
    const bool direct = is_dense(tensor) && (like == nullptr || same_layout(tensor, *like));
    held_.push_back(direct ? tensor : copy_laid_out_as(tensor, like));
    const kernels::Input input = input_of(held_.back(), dtype);
    if (like != nullptr && input.data != outputs[i].data) {
      extents_.push_back({input.data, tensor.nbytes(), names_.size(), false});
      names_.push_back(nth(list, i));
    }
    return input;
  }

  const at::Tensor& standin(std::size_t i) const { return standins_[i]; }

  void check_overlaps() {
    if (const auto overlap = find_overlap(extents_)) {
      raise<ConfigError>(where_, names_[overlap->first.index], " and ",
                         names_[overlap->second.index], " overlap in memory");
    }
  }

  void write_back() {
    for (auto& [tensor, standin] : indirect_) tensor.detach().copy_(standin);
    for (const at::Tensor& tensor : written_) bump_version(tensor);
  }

  const at::Device& device() const { return device_; }

  std::vector<kernels::Output> outputs;

 private:
  void check_device(const char* list, std::size_t i, const at::Tensor& tensor) {
    if (!any_) device_ = tensor.device();
    any_ = true;
    if (tensor.device() != device_) {
      raise<ConfigError>(where_, nth(list, i), " is on ", tensor.device(), ", others are on ",
                         device_, "; expected one device");
    }
  }
  static at::Tensor empty_dense(const at::Tensor& like) {
    return at::empty_like(like, like.options().requires_grad(false), at::MemoryFormat::Contiguous);
  }
  static at::Tensor copy_laid_out_as(const at::Tensor& tensor, const at::Tensor* like) {
    at::Tensor copy =
        like == nullptr ? empty_dense(tensor) : empty_laid_out_as(*like, tensor.scalar_type());
    return copy.copy_(tensor.detach());
  }

  std::string_view where_;
  at::Device device_{at::kCPU};
  bool any_ = false;
  std::vector<at::Tensor> standins_, held_, written_;
  std::vector<std::pair<at::Tensor, at::Tensor>> indirect_;
  std::vector<Extent> extents_;
  std::vector<std::string> names_;
};

void check_lengths(std::string_view where, const char* a, at::TensorList list_a, const char* b,
                   at::TensorList list_b) {
  if (list_a.size() != list_b.size()) {
    raise<ConfigError>(where, "'", a, "' has ", list_a.size(), " tensors, '", b, "' has ",
                       list_b.size());
  }
}

std::vector<kernels::Input> inputs_of(Buffers& buffers, const char* name, at::TensorList list,
                                      bool like_outputs) {
  std::vector<kernels::Input> inputs;
  inputs.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    inputs.push_back(buffers.input(name, i, list[i], like_outputs ? &buffers.standin(i) : nullptr));
  }
  return inputs;
}

// Descriptors and scratch memory are kept, so that calls neither allocate nor free: freeing would
// wait for the device. Each stream has its own, since calls on two of them may run at once.
kernels::cuda::List* kept_list(const kernels::cuda::Interface& cuda, const at::Device& device,
                               kernels::cuda::Stream stream) {
  using Key = std::tuple<const void*, c10::DeviceIndex, kernels::cuda::Stream>;
  static thread_local std::map<Key, CudaList> lists;
  CudaList& list = lists[{&cuda, device.index(), stream}];
  if (!list) list = make_cuda_list(cuda, device);
  return list.get();
}

// One call of the CUDA kernels, with the flag that they leave.
class CudaCall {
 public:
  CudaCall(std::string_view where, const kernels::cuda::Interface& functions,
           const at::Device& device)
      : cuda(functions),
        stream(current_stream(device)),
        list(kept_list(cuda, device, stream)),
        where_(where),
        device_(device) {}

  float* found() {
    found_ = at::zeros({}, at::TensorOptions(device_).dtype(at::kFloat));
    return found_.mutable_data_ptr<float>();
  }
  bool finite(bool done) const {
    kernels::check_cuda(cuda, done, where_);
    return found_.item<float>() == 0;
  }

  const kernels::cuda::Interface& cuda;
  const kernels::cuda::Stream stream;
  kernels::cuda::List* const list;

 private:
  std::string_view where_;
  at::Device device_;
  at::Tensor found_;
};

std::int64_t size_of_list(const auto& list) {
  return static_cast<std::int64_t>(list.size());
}

double norm_on(const CudaCall& call, const at::Device& device,
               const std::vector<kernels::Input>& inputs, kernels::Norm which,
               std::span<double> each) {
  const auto count = size_of_list(inputs);
  const at::Tensor norms = at::empty({count + 1}, at::TensorOptions(device).dtype(at::kDouble));
  auto* numbers = norms.mutable_data_ptr<double>();
  const bool done = call.cuda.norm(call.list, inputs.data(), count, which == kernels::Norm::kMax,
                                   numbers, numbers + 1, nullptr, call.stream);
  kernels::check_cuda(call.cuda, done, "norm");
  const at::Tensor here = norms.to(at::kCPU);
  const auto* read = here.const_data_ptr<double>();
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = read[i + 1];
  return read[0];
}

void add_outputs(Buffers& buffers, const char* name, at::TensorList list) {
  for (std::size_t i = 0; i < list.size(); ++i) buffers.add_output(name, i, list[i]);
}

// Is a tensor where none of our kernels reach it together with the others?
bool any_elsewhere(at::TensorList list) {
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& tensor) {
    return tensor.defined() && (!has_kernels(tensor.device()) ||
                                (list[0].defined() && tensor.device() != list[0].device()));
  });
}

// What Buffers checks, for tensors that LibTorch's operators will work on.
void check_elsewhere(std::string_view where, const char* name, at::TensorList list,
                     at::TensorList out) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    check_floating_tensor(where, nth(name, i), list[i]);
    if (out.empty()) continue;
    if (list[i].sizes() != out[i].sizes() || list[i].device() != out[i].device()) {
      raise<ConfigError>(where, nth(name, i), " is ", describe(list[i]), ", its output ",
                         describe(out[i]), "; expected the same sizes and device");
    }
  }
}

}  // namespace

bool all_finite(std::string_view where, at::TensorList tensors) {
  if (any_elsewhere(tensors)) {
    check_elsewhere(where, "tensors", tensors, {});
    return by_operators::all_finite(tensors);
  }
  Buffers buffers(where);
  const auto inputs = inputs_of(buffers, "tensors", tensors, false);
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    CudaCall call(where, *cuda, buffers.device());
    return call.finite(
        cuda->check(call.list, inputs.data(), size_of_list(inputs), call.found(), call.stream));
  }
  return kernels::Lists(torch_workers()).all_finite(inputs);
}

double norm(std::string_view where, at::TensorList tensors, kernels::Norm which,
            std::vector<double>* per_tensor) {
  if (any_elsewhere(tensors)) {
    check_elsewhere(where, "tensors", tensors, {});
    return by_operators::norm(tensors, which, per_tensor);
  }
  Buffers buffers(where);
  const auto inputs = inputs_of(buffers, "tensors", tensors, false);
  std::span<double> each;
  if (per_tensor != nullptr) {
    per_tensor->resize(tensors.size());
    each = *per_tensor;
  }
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const CudaCall call(where, *cuda, buffers.device());
    return norm_on(call, buffers.device(), inputs, which, each);
  }
  return kernels::Lists(torch_workers()).norm(inputs, which, each);
}

bool scale(std::string_view where, at::TensorList in, at::TensorList out, double factor) {
  check_lengths(where, "in", in, "out", out);
  if (any_elsewhere(out) || any_elsewhere(in)) {
    check_elsewhere(where, "out", out, {});
    check_elsewhere(where, "in", in, out);
    return by_operators::scale(in, out, factor);
  }
  Buffers buffers(where);
  add_outputs(buffers, "out", out);
  const auto inputs = inputs_of(buffers, "in", in, true);
  buffers.check_overlaps();
  bool finite = true;
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    CudaCall call(where, *cuda, buffers.device());
    finite =
        call.finite(cuda->scale(call.list, inputs.data(), buffers.outputs.data(),
                                size_of_list(inputs), factor, nullptr, call.found(), call.stream));
  } else {
    finite = kernels::Lists(torch_workers()).scale(inputs, buffers.outputs, factor);
  }
  buffers.write_back();
  return finite;
}

bool axpby(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out, double a,
           double b) {
  check_lengths(where, "x", x, "out", out);
  check_lengths(where, "y", y, "out", out);
  if (any_elsewhere(out) || any_elsewhere(x) || any_elsewhere(y)) {
    check_elsewhere(where, "out", out, {});
    check_elsewhere(where, "x", x, out);
    check_elsewhere(where, "y", y, out);
    return by_operators::axpby(x, y, out, a, b);
  }
  Buffers buffers(where);
  add_outputs(buffers, "out", out);
  const auto inputs_x = inputs_of(buffers, "x", x, true);
  const auto inputs_y = inputs_of(buffers, "y", y, true);
  buffers.check_overlaps();
  bool finite = true;
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    CudaCall call(where, *cuda, buffers.device());
    finite =
        call.finite(cuda->axpby(call.list, inputs_x.data(), inputs_y.data(), buffers.outputs.data(),
                                size_of_list(inputs_x), a, b, call.found(), call.stream));
  } else {
    finite = kernels::Lists(torch_workers()).axpby(inputs_x, inputs_y, buffers.outputs, a, b);
  }
  buffers.write_back();
  return finite;
}

void copy(std::string_view where, at::TensorList in, at::TensorList out) {
  check_lengths(where, "in", in, "out", out);
  if (any_elsewhere(out) || any_elsewhere(in)) {
    check_elsewhere(where, "out", out, {});
    check_elsewhere(where, "in", in, out);
    return by_operators::copy(in, out);
  }
  Buffers buffers(where);
  add_outputs(buffers, "out", out);
  const auto inputs = inputs_of(buffers, "in", in, true);
  buffers.check_overlaps();
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const CudaCall call(where, *cuda, buffers.device());
    kernels::check_cuda(*cuda,
                        cuda->copy(call.list, inputs.data(), buffers.outputs.data(),
                                   size_of_list(inputs), call.stream),
                        "copy");
  } else {
    kernels::Lists(torch_workers()).copy(inputs, buffers.outputs);
  }
  buffers.write_back();
}

}  // namespace mezzo::bridge
