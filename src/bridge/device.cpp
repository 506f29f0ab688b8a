#include "bridge/device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

#include "bridge/device_index.h"
#include "bridge/device_memory.h"
#include "bridge/host.h"
#include "bridge/proofs.h"
#include "bridge/workers.h"
#include "kernels/cuda_driver.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

struct Choice {
  bool is_made = false;
  const kernels::cuda::Interface* functions = nullptr;
  Proofs* proofs = nullptr;  // of the functions
};
std::array<Choice, c10::COMPILE_TIME_MAX_DEVICE_TYPES> choices;

const Choice& choice_for(const at::Device& device) {
  return choices[static_cast<std::size_t>(device.type())];
}

// One function of the library, whose last arguments are the device and its current stream. The
// device is made current by LibTorch's guard, which makes no context on the one before.
template <typename... Parameters, typename... Arguments>
void call(const kernels::cuda::Interface& cuda, const at::Device& device, const char* what,
          bool (*function)(Parameters...), const Arguments&... arguments) {
  const c10::DeviceGuard guard(device);
  const bool done = function(arguments..., index_of(device), current_stream(device));
  kernels::check_cuda(cuda, done, what);
}

at::Tensor scratch_of(std::int64_t numbers, at::ScalarType type, const at::Device& device) {
  return at::empty({numbers}, at::TensorOptions(device).dtype(type));
}

// Doubles for the partial results of a batch.
at::Tensor batch_scratch(const kernels::BatchShape& shape, const kernels::cuda::Interface* cuda,
                         const at::Device& device) {
  return scratch_of(cuda == nullptr ? kernels::batch_scratch(shape)
                                    : cuda->batch_scratch(&shape, index_of(device)),
                    at::kDouble, device);
}

}  // namespace

Proofs* proofs_on(const at::Device& device) {
  if (const Choice& choice = choice_for(device); choice.is_made) return choice.proofs;
  if (!device.is_cuda()) return nullptr;
  const kernels::cuda::Interface* cuda = kernels::cuda_library(index_of(device));
  if (cuda == nullptr) return nullptr;
  static Proofs& of_library = Proofs::of(*cuda, device.type());
  return &of_library;
}

const kernels::cuda::Interface* cuda_kernels(const at::Device& device, Family family) {
  Proofs* proofs = proofs_on(device);
  return proofs != nullptr && proofs->hold(device, family) ? &proofs->functions() : nullptr;
}

void choose_kernels(c10::DeviceType type, const kernels::cuda::Interface* functions) {
  choices[static_cast<std::size_t>(type)] = {
      .is_made = true,
      .functions = functions,
      .proofs = functions == nullptr ? nullptr : &Proofs::of(*functions, type)};
}

void choose_usual_kernels(c10::DeviceType type) {
  choices[static_cast<std::size_t>(type)] = {};
}

bool is_host(const at::Device& device) {
  return device.is_cpu() && choice_for(device).functions == nullptr;
}

bool has_kernels(const at::Device& device, Family family) {
  if (cuda_kernels(device, family) != nullptr) return true;
  return device.is_cpu() && !choice_for(device).is_made;
}

kernels::cuda::Stream current_stream(const at::Device& device) {
  if (!device.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

// The driver rather than our library, which may not be loaded while a graph is captured.
std::uint64_t current_capture(const at::Device& device) {
  const kernels::cuda::Interface* const chosen = choice_for(device).functions;
  if (chosen != nullptr) return chosen->capture(current_stream(device));
  if (!device.is_cuda()) return 0;
  return kernels::CudaDriver::of_this_machine().capture_of(current_stream(device));
}

CudaList make_cuda_list(const kernels::cuda::Interface& cuda, const at::Device& device) {
  kernels::cuda::List* list = cuda.make_list(index_of(device), memory_of(device.type()));
  kernels::check_cuda(cuda, list != nullptr, "list");
  return CudaList(list, FreeCudaList{&cuda});
}

DeviceFlag::DeviceFlag(at::Tensor& flag, const at::Device& device) : flag_(flag) {
  const bool in_place = flag.device() == device && flag.scalar_type() == at::kFloat;
  raised_ = in_place ? flag : at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
}

void DeviceFlag::merge() {
  if (raised_.is_same(flag_)) return;
  const at::Tensor there = raised_.to(flag_.device(), flag_.scalar_type()).view(flag_.sizes());
  flag_.copy_(at::maximum(flag_, there));
}

void update_scale(const at::Tensor& scale, const at::Tensor& unskipped, const at::Tensor& stuck,
                  const at::Tensor& found_inf, const kernels::ScaleRule& rule) {
  const at::Device device = scale.device();
  const kernels::cuda::Interface& cuda = *cuda_kernels(device, Family::kLists);
  call(cuda, device, "loss scale", cuda.update_scale, scale.mutable_data_ptr<float>(),
       unskipped.mutable_data_ptr<std::int32_t>(), stuck.mutable_data_ptr<std::int32_t>(),
       found_inf.const_data_ptr<float>(), &rule);
}

void norm_forward(const kernels::NormForward& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kNorms);
  if (cuda == nullptr) return kernels::norm_forward(norm, torch_workers());
  call(*cuda, device, "norm", cuda->norm_forward, &norm);
}

void norm_backward(const kernels::NormBackward& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kNorms);
  const std::int64_t numbers = cuda == nullptr ? kernels::norm_scratch(norm.shape)
                                               : cuda->norm_scratch(&norm.shape, index_of(device));
  const at::Tensor scratch =
      scratch_of(numbers, norm.shape.wide ? at::kDouble : at::kFloat, device);
  void* memory = scratch.mutable_data_ptr();
  if (cuda == nullptr) return kernels::norm_backward(norm, memory, torch_workers());
  call(*cuda, device, "norm", cuda->norm_backward, &norm, memory);
}

void batch_moments(const kernels::Rows& x, const kernels::BatchShape& shape,
                   const kernels::Moments& moments, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kBatchNorms);
  const at::Tensor scratch = batch_scratch(shape, cuda, device);
  auto* memory = scratch.mutable_data_ptr<double>();
  if (cuda == nullptr) return kernels::batch_moments(x, shape, moments, memory, torch_workers());
  call(*cuda, device, "batch norm", cuda->batch_moments, &x, &shape, &moments, memory);
}

void batch_normalise(const kernels::BatchNormalise& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kBatchNorms);
  if (cuda == nullptr) return kernels::batch_normalise(norm, torch_workers());
  call(*cuda, device, "batch norm", cuda->batch_normalise, &norm);
}

void batch_backward_reduce(const kernels::BatchGradient& gradient, double* sum_dy,
                           double* sum_dy_xmu, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kBatchNorms);
  const at::Tensor scratch = batch_scratch(gradient.shape, cuda, device);
  auto* memory = scratch.mutable_data_ptr<double>();
  if (cuda == nullptr) {
    return kernels::batch_backward_reduce(gradient, sum_dy, sum_dy_xmu, memory, torch_workers());
  }
  call(*cuda, device, "batch norm", cuda->batch_backward_reduce, &gradient, sum_dy, sum_dy_xmu,
       memory);
}

void batch_backward_apply(const kernels::BatchBackwardApply& apply, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kBatchNorms);
  if (cuda == nullptr) return kernels::batch_backward_apply(apply, torch_workers());
  call(*cuda, device, "batch norm", cuda->batch_backward_apply, &apply);
}

at::Tensor merge_moments(const at::Tensor& gathered, std::int64_t channels) {
  const at::Device device = gathered.device();
  at::Tensor result = at::empty({2, channels}, at::TensorOptions(device).dtype(at::kDouble));
  const auto* rows = gathered.const_data_ptr<double>();
  auto* mean = result.mutable_data_ptr<double>();
  const kernels::Moments moments{mean, mean + channels};
  const std::int64_t ranks = gathered.size(0);
  const std::int64_t stride = gathered.size(1);
  if (const kernels::cuda::Interface* cuda = cuda_kernels(device, Family::kBatchNorms)) {
    call(*cuda, device, "batch norm", cuda->batch_merge, rows, ranks, stride, channels, &moments);
    return result;
  }
  if (!device.is_cpu()) return merge_moments(gathered.cpu(), channels).to(device);
  std::vector<kernels::RankMoments> all;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const double* row = rows + r * stride;
    all.push_back({row[2 * channels], row, row + channels});
  }
  kernels::merge_moments(all, channels, moments);
  return result;
}

}  // namespace mezzo::bridge
