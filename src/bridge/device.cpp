#include "bridge/device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

#include "bridge/host.h"
#include "bridge/workers.h"
#include "kernels/cuda_driver.h"
#include "kernels/cuda_library.h"

namespace mezzo::bridge {
namespace {

struct Choice {
  bool is_made = false;
  const kernels::cuda::Interface* functions = nullptr;
};
std::array<Choice, c10::COMPILE_TIME_MAX_DEVICE_TYPES> choices;

const Choice& choice_for(const at::Device& device) {
  return choices[static_cast<std::size_t>(device.type())];
}

int index_of(const at::Device& device) {
  return device.has_index() ? device.index() : 0;
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

const kernels::cuda::Interface* cuda_kernels(const at::Device& device) {
  if (const Choice& choice = choice_for(device); choice.is_made) return choice.functions;
  return device.is_cuda() ? kernels::cuda_library(index_of(device)) : nullptr;
}

void choose_kernels(c10::DeviceType type, const kernels::cuda::Interface* functions) {
  choices[static_cast<std::size_t>(type)] = {.is_made = true, .functions = functions};
}

void choose_usual_kernels(c10::DeviceType type) {
  choices[static_cast<std::size_t>(type)] = {};
}

bool is_host(const at::Device& device) {
  return device.is_cpu() && choice_for(device).functions == nullptr;
}

bool has_kernels(const at::Device& device) {
  if (cuda_kernels(device) != nullptr) return true;
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
  kernels::cuda::List* list = cuda.make_list(index_of(device));
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
  const kernels::cuda::Interface& cuda = *cuda_kernels(device);
  const bool done =
      cuda.update_scale(scale.mutable_data_ptr<float>(), unskipped.mutable_data_ptr<std::int32_t>(),
                        stuck.mutable_data_ptr<std::int32_t>(), found_inf.const_data_ptr<float>(),
                        &rule, index_of(device), current_stream(device));
  kernels::check_cuda(cuda, done, "loss scale");
}

void norm_forward(const kernels::NormForward& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  if (cuda == nullptr) return kernels::norm_forward(norm, torch_workers());
  kernels::check_cuda(*cuda, cuda->norm_forward(&norm, index_of(device), current_stream(device)),
                      "norm");
}

void norm_backward(const kernels::NormBackward& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  const std::int64_t numbers = cuda == nullptr ? kernels::norm_scratch(norm.shape)
                                               : cuda->norm_scratch(&norm.shape, index_of(device));
  const at::Tensor scratch =
      scratch_of(numbers, norm.shape.wide ? at::kDouble : at::kFloat, device);
  void* memory = scratch.mutable_data_ptr();
  if (cuda == nullptr) return kernels::norm_backward(norm, memory, torch_workers());
  kernels::check_cuda(
      *cuda, cuda->norm_backward(&norm, memory, index_of(device), current_stream(device)), "norm");
}

void batch_moments(const kernels::Rows& x, const kernels::BatchShape& shape,
                   const kernels::Moments& moments, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  const at::Tensor scratch = batch_scratch(shape, cuda, device);
  auto* memory = scratch.mutable_data_ptr<double>();
  if (cuda == nullptr) return kernels::batch_moments(x, shape, moments, memory, torch_workers());
  kernels::check_cuda(
      *cuda,
      cuda->batch_moments(&x, &shape, &moments, memory, index_of(device), current_stream(device)),
      "batch norm");
}

void batch_normalise(const kernels::BatchNormalise& norm, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  if (cuda == nullptr) return kernels::batch_normalise(norm, torch_workers());
  kernels::check_cuda(*cuda, cuda->batch_normalise(&norm, index_of(device), current_stream(device)),
                      "batch norm");
}

void batch_backward_reduce(const kernels::BatchGradient& gradient, double* sum_dy,
                           double* sum_dy_xmu, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  const at::Tensor scratch = batch_scratch(gradient.shape, cuda, device);
  auto* memory = scratch.mutable_data_ptr<double>();
  if (cuda == nullptr) {
    return kernels::batch_backward_reduce(gradient, sum_dy, sum_dy_xmu, memory, torch_workers());
  }
  kernels::check_cuda(*cuda,
                      cuda->batch_backward_reduce(&gradient, sum_dy, sum_dy_xmu, memory,
                                                  index_of(device), current_stream(device)),
                      "batch norm");
}

void batch_backward_apply(const kernels::BatchBackwardApply& apply, const at::Device& device) {
  const kernels::cuda::Interface* cuda = cuda_kernels(device);
  if (cuda == nullptr) return kernels::batch_backward_apply(apply, torch_workers());
  kernels::check_cuda(*cuda,
                      cuda->batch_backward_apply(&apply, index_of(device), current_stream(device)),
                      "batch norm");
}

at::Tensor merge_moments(const at::Tensor& gathered, std::int64_t channels) {
  const at::Device device = gathered.device();
  at::Tensor result = at::empty({2, channels}, at::TensorOptions(device).dtype(at::kDouble));
  const auto* rows = gathered.const_data_ptr<double>();
  auto* mean = result.mutable_data_ptr<double>();
  const kernels::Moments moments{mean, mean + channels};
  const std::int64_t ranks = gathered.size(0);
  const std::int64_t stride = gathered.size(1);
  if (const kernels::cuda::Interface* cuda = cuda_kernels(device)) {
    kernels::check_cuda(*cuda,
                        cuda->batch_merge(rows, ranks, stride, channels, &moments, index_of(device),
                                          current_stream(device)),
                        "batch norm");
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
