// Operators of the device that move no element: they make tensors and views; and those that
// LibTorch has for CUDA alone.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/InferSize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <cstring>

#include "device.h"
#include "guard.h"
#include "kernels.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::kCUDA), kKeys,
                                   c10::dtype_or_default(type), format);
}

at::Tensor zeros_without_memory(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                                std::optional<at::Layout>, std::optional<at::Device> device,
                                std::optional<bool>) {
  static std::array<at::native::ZeroTensorAllocator, kDevices> allocators{
      at::native::ZeroTensorAllocator(pretend::device(0)),
      at::native::ZeroTensorAllocator(pretend::device(1))};
  const int index = device && device->has_index() ? device->index() : current_device();
  return at::detail::empty_generic(sizes, &allocators.at(static_cast<std::size_t>(index)),
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(type), std::nullopt);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(c10::kCUDA), kKeys,
                                           c10::dtype_or_default(type));
}

void grow(const at::Tensor& self, std::size_t bytes) {
  const c10::Storage& storage = self.storage();
  if (storage.nbytes() >= bytes) return;
  const c10::DeviceGuard guard(self.device());
  c10::DataPtr data = c10::GetAllocator(c10::kCUDA)->allocate(bytes);
  const std::size_t before = storage.nbytes();
  if (before > 0) {
    void* to = Memory::all().for_kernels(data.get());
    const void* from = Memory::all().for_kernels(storage.data());
    Streams::all().queue(current_stream(self.get_device()),
                         [to, from, before] { std::memcpy(to, from, before); });
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  if (self.sizes() != sizes) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    const std::int64_t end = self.storage_offset() + self.numel();
    if (self.numel() > 0) grow(self, static_cast<std::size_t>(end) * self.itemsize());
  }
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, std::int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (strides.empty() && !sizes.empty()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  return self;
}

at::Tensor& set_whole(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<std::int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {count}, {});
}

at::Tensor& set_like(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0,
                       c10::GetAllocator(c10::kCUDA)->allocate(0), c10::GetAllocator(c10::kCUDA),
                       true);
  return set_storage(self, std::move(storage), 0, {0}, {});
}

void record_stream(at::Tensor& self, at::Stream stream) {
  if (self.storage().data() != nullptr) {
    Memory::all().record_stream(self.storage().mutable_data(), name_of(stream));
  }
}

std::int64_t attention_by_math(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const std::optional<at::Tensor>&, double, bool,
                               std::optional<double>, bool) {
  return 0;
}

struct ChoosesAttention {
  ChoosesAttention() {
    at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_by_math);
  }
};
const ChoosesAttention chooses_attention;

/// The type that a cell computes in.
at::ScalarType wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// One kernel on a GPU; the workspace holds the four gates for the way back.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor hy = at::empty_like(cx);
  const at::Tensor cy = at::empty_like(cx);
  const at::Tensor workspace = at::empty_like(input_gates);
  queue_kernel({input_gates, hidden_gates, cx, input_bias.value_or(at::Tensor()),
                hidden_bias.value_or(at::Tensor()), hy, cy, workspace},
               [](const std::vector<at::Tensor>& t) {
                 at::Tensor gates = t[0].to(wide(t[0])) + t[1].to(wide(t[1]));
                 if (t[3].defined()) gates = gates + t[3].to(wide(t[3])) + t[4].to(wide(t[4]));
                 const auto parts = gates.chunk(4, 1);
                 const at::Tensor in = parts[0].sigmoid();
                 const at::Tensor forget = parts[1].sigmoid();
                 const at::Tensor cell = parts[2].tanh();
                 const at::Tensor out = parts[3].sigmoid();
                 const at::Tensor next = forget * t[2].to(wide(t[2])) + in * cell;
                 t[5].copy_(out * next.tanh());
                 t[6].copy_(next);
                 t[7].copy_(at::cat({in, forget, cell, out}, 1));
               });
  return {hy, cy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  const at::Tensor gates = at::empty_like(workspace);
  const at::Tensor grad_cx = at::empty_like(cx);
  queue_kernel({grad_hy.value_or(at::Tensor()), grad_cy.value_or(at::Tensor()), cx, cy, workspace,
                gates, grad_cx},
               [](const std::vector<at::Tensor>& t) {
                 const auto parts = t[4].to(wide(t[4])).chunk(4, 1);
                 const at::Tensor wave = t[3].to(wide(t[3])).tanh();
                 at::Tensor gh = t[0].defined() ? t[0].to(wide(t[0])) : at::zeros_like(wave);
                 at::Tensor gc = t[1].defined() ? t[1].to(wide(t[1])) : at::zeros_like(wave);
                 gc = gc + gh * parts[3] * (1 - wave * wave);
                 const at::Tensor in = gc * parts[2] * parts[0] * (1 - parts[0]);
                 const at::Tensor forget = gc * t[2].to(wide(t[2])) * parts[1] * (1 - parts[1]);
                 const at::Tensor cell = gc * parts[0] * (1 - parts[2] * parts[2]);
                 const at::Tensor out = gh * wave * parts[3] * (1 - parts[3]);
                 t[5].copy_(at::cat({in, forget, cell, out}, 1));
                 t[6].copy_(gc * parts[1]);
               });
  return {gates, grad_cx, has_bias ? gates.sum(0, false) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const std::optional<at::Tensor>& input_bias,
                                            const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor hy = at::empty_like(hx);
  const at::Tensor workspace = at::empty({hx.size(0), hx.size(1) * 5}, hx.options());
  queue_kernel({input_gates, hidden_gates, hx, input_bias.value_or(at::Tensor()),
                hidden_bias.value_or(at::Tensor()), hy, workspace},
               [](const std::vector<at::Tensor>& t) {
                 at::Tensor in = t[0].to(wide(t[0]));
                 at::Tensor hidden = t[1].to(wide(t[1]));
                 if (t[3].defined()) {
                   in = in + t[3].to(wide(t[3]));
                   hidden = hidden + t[4].to(wide(t[4]));
                 }
                 const auto i = in.chunk(3, 1);
                 const auto h = hidden.chunk(3, 1);
                 const at::Tensor reset = (i[0] + h[0]).sigmoid();
                 const at::Tensor update = (i[1] + h[1]).sigmoid();
                 const at::Tensor fresh = (i[2] + reset * h[2]).tanh();
                 const at::Tensor before = t[2].to(wide(t[2]));
                 t[5].copy_(fresh + update * (before - fresh));
                 t[6].copy_(at::cat({reset, update, fresh, before, h[2]}, 1));
               });
  return {hy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const std::int64_t size = workspace.size(1) / 5;
  const at::Tensor grad_in = at::empty({workspace.size(0), 3 * size}, workspace.options());
  const at::Tensor grad_hidden = at::empty_like(grad_in);
  const at::Tensor grad_hx = at::empty_like(grad_hy);
  queue_kernel({grad_hy, workspace, grad_in, grad_hidden, grad_hx},
               [](const std::vector<at::Tensor>& t) {
                 const at::Tensor grad = t[0].to(wide(t[0]));
                 const auto w = t[1].to(wide(t[1])).chunk(5, 1);
                 const at::Tensor update = grad * (w[3] - w[2]) * (1 - w[1]) * w[1];
                 const at::Tensor fresh = grad * (1 - w[1]) * (1 - w[2] * w[2]);
                 const at::Tensor reset = fresh * w[4] * (1 - w[0]) * w[0];
                 t[2].copy_(at::cat({reset, update, fresh}, 1));
                 t[3].copy_(at::cat({reset, update, fresh * w[0]}, 1));
                 t[4].copy_(grad * w[1]);
               });
  return {grad_in, grad_hidden, grad_hx, has_bias ? grad_in.sum(0, false) : at::Tensor(),
          has_bias ? grad_hidden.sum(0, false) : at::Tensor()};
}

at::Tensor depthwise(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef,
                     const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation) {
  std::vector<std::int64_t> sizes{self.size(0), weight.size(0)};
  for (std::size_t i = 0; i < stride.size(); ++i) {
    const auto d = static_cast<std::int64_t>(i) + 2;
    sizes.push_back(
        (self.size(d) + 2 * padding[i] - dilation[i] * (weight.size(d) - 1) - 1) / stride[i] + 1);
  }
  const at::Tensor out = at::empty(sizes, self.options());
  const std::int64_t groups = self.size(1);
  queue_kernel(
      {self, weight, bias.value_or(at::Tensor()), out},
      [stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
       groups](const std::vector<at::Tensor>& t) {
        t[3].copy_(at::convolution(t[0], t[1], t[2].defined() ? std::optional(t[2]) : std::nullopt,
                                   stride, padding, dilation, false,
                                   std::vector<std::int64_t>(stride.size(), 0), groups));
      });
  return out;
}

std::tuple<at::Tensor, at::Tensor> depthwise_backward(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
    std::array<bool, 2> mask) {
  const at::Tensor to_self = at::empty_like(self);
  const at::Tensor to_weight = at::empty_like(weight);
  const std::int64_t groups = self.size(1);
  queue_kernel({grad, self, weight, to_self, to_weight},
               [stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), groups,
                mask](const std::vector<at::Tensor>& t) {
                 const auto made = at::convolution_backward(
                     t[0], t[1], t[2], std::nullopt, stride, padding, dilation, false,
                     std::vector<std::int64_t>(stride.size(), 0), groups,
                     {mask[0], mask[1], false});
                 if (mask[0]) t[3].copy_(std::get<0>(made));
                 if (mask[1]) t[4].copy_(std::get<1>(made));
               });
  return {mask[0] ? to_self : at::Tensor(), mask[1] ? to_weight : at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("_efficientzerotensor", TORCH_FN(zeros_without_memory));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_whole));
  library.impl("set_.source_Tensor", TORCH_FN(set_like));
  library.impl("set_", TORCH_FN(set_nothing));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
  library.impl("_conv_depthwise2d", TORCH_FN(depthwise));
  library.impl("_conv_depthwise2d_backward.output_mask", TORCH_FN(depthwise_backward));
}

}  // namespace
}  // namespace mezzo::pretend
