#include "bridge/list_buffers.h"

#include <ATen/ops/empty_like.h>

#include "bridge/outputs.h"
#include "bridge/tensors.h"

namespace mezzo::bridge {
namespace {

at::Tensor empty_dense(const at::Tensor& like) {
  return at::empty_like(like, like.options().requires_grad(false), at::MemoryFormat::Contiguous);
}

at::Tensor copy_laid_out_as(const at::Tensor& tensor, const at::Tensor* like) {
  at::Tensor copy =
      like == nullptr ? empty_dense(tensor) : empty_laid_out_as(*like, tensor.scalar_type());
  return copy.copy_(tensor.detach());
}

}  // namespace

std::string nth(const char* list, std::size_t i) {
  return std::string(list) + '[' + std::to_string(i) + ']';
}

void check_lengths(std::string_view where, const char* a, at::TensorList list_a, const char* b,
                   at::TensorList list_b) {
  if (list_a.size() != list_b.size()) {
    raise<ConfigError>(where, "'", a, "' has ", list_a.size(), " tensors, '", b, "' has ",
                       list_b.size());
  }
}

void ListBuffers::add_outputs(const char* name, at::TensorList list) {
  for (std::size_t i = 0; i < list.size(); ++i) add_output(name, i, list[i]);
}

std::vector<kernels::Input> ListBuffers::inputs(const char* name, at::TensorList list) {
  std::vector<kernels::Input> result;
  result.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) result.push_back(input(name, i, list[i], nullptr));
  return result;
}

std::vector<kernels::Input> ListBuffers::inputs_for_outputs(const char* name, at::TensorList list) {
  std::vector<kernels::Input> result;
  result.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    result.push_back(input(name, i, list[i], &standins_[i]));
  }
  return result;
}

void ListBuffers::add_output(const char* list, std::size_t i, const at::Tensor& tensor) {
  const DType dtype = check_kernel_tensor(where_, nth(list, i), tensor);
  check_device(list, i, tensor);
  const bool direct = is_dense(tensor);
  // Before a copy is made, which an expanded one could make large.
  if (!direct) {
    check_outputs(
        where_, [&](std::size_t) { return nth(list, i); }, tensor);
  }
  standins_.push_back(direct ? tensor : empty_dense(tensor));
  if (!direct) indirect_.emplace_back(tensor, standins_.back());
  outputs.push_back(output_of(standins_.back(), dtype));
  extents_.push_back({outputs.back().data, tensor.nbytes(), names_.size(), true});
  names_.push_back(nth(list, i));
  written_.push_back(tensor);
}

kernels::Input ListBuffers::input(const char* list, std::size_t i, const at::Tensor& tensor,
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
  if (like == nullptr) return input;
  if (input.data != outputs[i].data || input.dtype != outputs[i].dtype) {
    extents_.push_back({input.data, tensor.nbytes(), names_.size(), false});
    names_.push_back(nth(list, i));
  }
  return input;
}

void ListBuffers::check_overlaps() {
  // Outputs that a copy stands for are written after all others, and where they really are.
  if (!indirect_.empty()) {
    check_outputs(
        where_, [&](std::size_t i) { return names_[i]; }, written_);
  }
  if (const auto overlap = find_overlap(extents_)) {
    raise<ConfigError>(where_, names_[overlap->first.index], " and ", names_[overlap->second.index],
                       " overlap in memory");
  }
}

void ListBuffers::read_outputs() {
  for (auto& [tensor, standin] : indirect_) standin.copy_(tensor.detach());
}

void ListBuffers::write_back() {
  for (auto& [tensor, standin] : indirect_) tensor.detach().copy_(standin);
  for (const at::Tensor& tensor : written_) bump_version(tensor);
}

void ListBuffers::check_device(const char* list, std::size_t i, const at::Tensor& tensor) {
  if (!any_) device_ = tensor.device();
  any_ = true;
  if (tensor.device() != device_) {
    raise<ConfigError>(where_, nth(list, i), " is on ", tensor.device(), ", others are on ",
                       device_, "; expected one device");
  }
}

}  // namespace mezzo::bridge
