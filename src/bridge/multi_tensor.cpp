#include "bridge/multi_tensor.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "bridge/device.h"
#include "bridge/kept_lists.h"
#include "bridge/list_buffers.h"
#include "bridge/list_operators.h"
#include "bridge/outputs.h"
#include "bridge/tensors.h"
#include "bridge/workers.h"
#include "kernels/cuda_library.h"

#include <algorithm>

namespace mezzo::bridge {
namespace {

// One call of the CUDA kernels.
struct CudaCall {
  const kernels::cuda::Interface& cuda;
  kernels::cuda::Stream stream;
  kernels::cuda::List* list;
  std::string_view where;

  CudaCall(std::string_view caller, const kernels::cuda::Interface& functions,
           const at::Device& device)
      : cuda(functions),
        stream(current_stream(device)),
        list(kept_list(cuda, device, stream)),
        where(caller) {}
  void expect(bool done) const { kernels::check_cuda(cuda, done, where); }
};

std::int64_t size_of_list(const auto& list) {
  return static_cast<std::int64_t>(list.size());
}

at::Tensor no_flag(const at::Device& device) {
  return at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
}

bool is_clear(const at::Tensor& flag) {
  return flag.item<float>() == 0;
}

// Is a tensor where none of our kernels reach it together with the others?
bool any_elsewhere(at::TensorList list) {
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& tensor) {
    return tensor.defined() && (!has_kernels(tensor.device()) ||
                                (list[0].defined() && tensor.device() != list[0].device()));
  });
}

// The checks of ListBuffers, for tensors that LibTorch's operators will work on.
void check_elsewhere(std::string_view where, const char* name, at::TensorList list) {
  for (std::size_t i = 0; i < list.size(); ++i) check_floating_tensor(where, nth(name, i), list[i]);
}

void check_outputs_elsewhere(std::string_view where, at::TensorList out) {
  check_elsewhere(where, "out", out);
  check_outputs(where, "out", out);
}

void check_inputs_elsewhere(std::string_view where, const char* name, at::TensorList list,
                            at::TensorList out) {
  check_elsewhere(where, name, list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].sizes() != out[i].sizes() || list[i].device() != out[i].device()) {
      raise<ConfigError>(where, nth(name, i), " is ", describe(list[i]), ", its output ",
                         describe(out[i]), "; expected the same sizes and device");
    }
  }
}

/// A vector of doubles where kernels of the host read it.
std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.to(at::kCPU, at::kDouble).contiguous();
  const auto* begin = here.const_data_ptr<double>();
  return {begin, begin + here.numel()};
}

at::Tensor tensor_of(const std::vector<double>& numbers) {
  at::Tensor tensor = at::empty({size_of_list(numbers)}, at::kDouble);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

// The norms of a list on a CUDA device: of all together, then of each.
at::Tensor norms_on(const CudaCall& call, const at::Device& device,
                    const std::vector<kernels::Input>& inputs, kernels::Norm which) {
  const auto count = size_of_list(inputs);
  at::Tensor norms = at::empty({count + 1}, at::TensorOptions(device).dtype(at::kDouble));
  auto* numbers = norms.mutable_data_ptr<double>();
  call.expect(call.cuda.norm(call.list, inputs.data(), count, which == kernels::Norm::kMax, numbers,
                             numbers + 1, nullptr, call.stream));
  return norms;
}

// The factors of one axpby: the same for all tensors, or of each.
struct AxpbyFactors {
  double a = 1, b = 1;
  at::Tensor of_a = {}, of_b = {};  // vectors of doubles, or undefined
};

void axpby_by(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out,
              const AxpbyFactors& by, at::Tensor* found_inf) {
  check_lengths(where, "x", x, "out", out);
  check_lengths(where, "y", y, "out", out);
  const bool each = by.of_a.defined();
  bool finite = true;
  if (any_elsewhere(out) || any_elsewhere(x) || any_elsewhere(y)) {
    check_outputs_elsewhere(where, out);
    check_inputs_elsewhere(where, "x", x, out);
    check_inputs_elsewhere(where, "y", y, out);
    finite = each ? by_operators::axpby(x, y, out, numbers_of(by.of_a), numbers_of(by.of_b))
                  : by_operators::axpby(x, y, out, by.a, by.b);
    if (!finite && found_inf != nullptr) found_inf->fill_(1);
    return;
  }
  ListBuffers buffers(where);
  buffers.add_outputs("out", out);
  const auto inputs_x = buffers.inputs_for_outputs("x", x);
  const auto inputs_y = buffers.inputs_for_outputs("y", y);
  buffers.check_overlaps();
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const CudaCall call(where, *cuda, buffers.device());
    std::optional<DeviceFlag> flag;
    if (found_inf != nullptr) flag.emplace(*found_inf, buffers.device());
    at::Tensor factors;
    if (each) factors = at::cat({by.of_a, by.of_b}).to(buffers.device());
    call.expect(cuda->axpby(call.list, inputs_x.data(), inputs_y.data(), buffers.outputs.data(),
                            size_of_list(inputs_x), by.a, by.b,
                            each ? factors.const_data_ptr<double>() : nullptr,
                            flag ? flag->address() : nullptr, call.stream));
    if (flag) flag->merge();
  } else if (each) {
    kernels::Lists(torch_workers())
        .axpby(inputs_x, inputs_y, buffers.outputs, numbers_of(by.of_a), numbers_of(by.of_b));
  } else {
    finite = kernels::Lists(torch_workers()).axpby(inputs_x, inputs_y, buffers.outputs, by.a, by.b);
  }
  if (!finite && found_inf != nullptr) found_inf->fill_(1);
  buffers.write_back();
}

}  // namespace

at::Device device_of_list(at::TensorList list) {
  return list.empty() || !list[0].defined() ? at::Device(at::kCPU) : list[0].device();
}

bool all_finite(std::string_view where, at::TensorList tensors) {
  if (any_elsewhere(tensors)) {
    check_elsewhere(where, "tensors", tensors);
    return by_operators::all_finite(tensors);
  }
  ListBuffers buffers(where);
  const auto inputs = buffers.inputs("tensors", tensors);
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const CudaCall call(where, *cuda, buffers.device());
    const at::Tensor found = no_flag(buffers.device());
    call.expect(cuda->check(call.list, inputs.data(), size_of_list(inputs),
                            found.mutable_data_ptr<float>(), call.stream));
    return is_clear(found);
  }
  return kernels::Lists(torch_workers()).all_finite(inputs);
}

double norm(std::string_view where, at::TensorList tensors, kernels::Norm which,
            std::vector<double>* per_tensor) {
  if (any_elsewhere(tensors)) {
    check_elsewhere(where, "tensors", tensors);
    return by_operators::norm(tensors, which, per_tensor);
  }
  ListBuffers buffers(where);
  const auto inputs = buffers.inputs("tensors", tensors);
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const std::vector<double> norms =
        numbers_of(norms_on({where, *cuda, buffers.device()}, buffers.device(), inputs, which));
    if (per_tensor != nullptr) per_tensor->assign(norms.begin() + 1, norms.end());
    return norms[0];
  }
  std::span<double> each;
  if (per_tensor != nullptr) {
    per_tensor->resize(tensors.size());
    each = *per_tensor;
  }
  return kernels::Lists(torch_workers()).norm(inputs, which, each);
}

at::Tensor norm_there(std::string_view where, at::TensorList tensors, kernels::Norm which,
                      at::Tensor* per_tensor) {
  const at::Device device = device_of_list(tensors);
  const auto* cuda = any_elsewhere(tensors) ? nullptr : cuda_kernels(device);
  if (cuda == nullptr) {
    std::vector<double> each;
    const double total = norm(where, tensors, which, per_tensor == nullptr ? nullptr : &each);
    if (per_tensor != nullptr) *per_tensor = tensor_of(each).to(device);
    return at::scalar_tensor(total, at::TensorOptions(device).dtype(at::kDouble));
  }
  ListBuffers buffers(where);
  const auto inputs = buffers.inputs("tensors", tensors);
  const at::Tensor norms = norms_on({where, *cuda, device}, device, inputs, which);
  if (per_tensor != nullptr) *per_tensor = norms.narrow(0, 1, size_of_list(inputs));
  return norms[0];
}

void scale(std::string_view where, at::TensorList in, at::TensorList out, double factor,
           at::Tensor& found_inf) {
  check_lengths(where, "in", in, "out", out);
  bool finite = true;
  if (any_elsewhere(out) || any_elsewhere(in)) {
    check_outputs_elsewhere(where, out);
    check_inputs_elsewhere(where, "in", in, out);
    if (!by_operators::scale(in, out, factor)) found_inf.fill_(1);
    return;
  }
  ListBuffers buffers(where);
  buffers.add_outputs("out", out);
  const auto inputs = buffers.inputs_for_outputs("in", in);
  buffers.check_overlaps();
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const CudaCall call(where, *cuda, buffers.device());
    DeviceFlag flag(found_inf, buffers.device());
    call.expect(cuda->scale(call.list, inputs.data(), buffers.outputs.data(), size_of_list(inputs),
                            factor, nullptr, flag.address(), call.stream));
    flag.merge();
  } else {
    finite = kernels::Lists(torch_workers()).scale(inputs, buffers.outputs, factor);
  }
  if (!finite) found_inf.fill_(1);
  buffers.write_back();
}

bool scale(std::string_view where, at::TensorList in, at::TensorList out, double factor) {
  at::Tensor found = no_flag(device_of_list(out));
  scale(where, in, out, factor, found);
  return is_clear(found);
}

void scale_by(std::string_view where, at::TensorList list, const at::Tensor& factor) {
  const at::Device device = device_of_list(list);
  const auto* cuda = any_elsewhere(list) ? nullptr : cuda_kernels(device);
  if (cuda == nullptr) {
    const auto number = factor.item<double>();
    if (number != 1) scale(where, list, list, number);
    return;
  }
  ListBuffers buffers(where);
  buffers.add_outputs("out", list);
  const auto inputs = buffers.inputs_for_outputs("in", list);
  buffers.check_overlaps();
  const at::Tensor there = factor.to(device, at::kDouble);
  const CudaCall call(where, *cuda, device);
  call.expect(cuda->scale(call.list, inputs.data(), buffers.outputs.data(), size_of_list(inputs), 1,
                          there.const_data_ptr<double>(), nullptr, call.stream));
  buffers.write_back();
}

void axpby(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out, double a,
           double b, at::Tensor& found_inf) {
  axpby_by(where, x, y, out, {.a = a, .b = b}, &found_inf);
}

bool axpby(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out, double a,
           double b) {
  at::Tensor found = no_flag(device_of_list(out));
  axpby(where, x, y, out, a, b, found);
  return is_clear(found);
}

void axpby_each(std::string_view where, at::TensorList x, at::TensorList y, at::TensorList out,
                const at::Tensor& a, const at::Tensor& b) {
  axpby_by(where, x, y, out, {.of_a = a, .of_b = b}, nullptr);
}

void copy(std::string_view where, at::TensorList in, at::TensorList out) {
  check_lengths(where, "in", in, "out", out);
  if (any_elsewhere(out) || any_elsewhere(in)) {
    check_outputs_elsewhere(where, out);
    check_inputs_elsewhere(where, "in", in, out);
    return by_operators::copy(in, out);
  }
  ListBuffers buffers(where);
  buffers.add_outputs("out", out);
  const auto inputs = buffers.inputs_for_outputs("in", in);
  buffers.check_overlaps();
  if (const auto* cuda = cuda_kernels(buffers.device())) {
    const CudaCall call(where, *cuda, buffers.device());
    call.expect(cuda->copy(call.list, inputs.data(), buffers.outputs.data(), size_of_list(inputs),
                           call.stream));
  } else {
    kernels::Lists(torch_workers()).copy(inputs, buffers.outputs);
  }
  buffers.write_back();
}

void copy_if(std::string_view where, at::TensorList in, at::TensorList out,
             const at::Tensor& flag) {
  check_lengths(where, "in", in, "out", out);
  if (out.empty()) return;
  ListBuffers buffers(where);
  buffers.add_outputs("out", out);
  const auto inputs = buffers.inputs_for_outputs("in", in);
  buffers.check_overlaps();
  // A copy that stands for an output with holes keeps that one's values where nothing is copied.
  buffers.read_outputs();
  const CudaCall call(where, *cuda_kernels(buffers.device()), buffers.device());
  call.expect(call.cuda.copy_if(call.list, inputs.data(), buffers.outputs.data(),
                                size_of_list(inputs), flag.const_data_ptr<float>(), call.stream));
  buffers.write_back();
}

}  // namespace mezzo::bridge
