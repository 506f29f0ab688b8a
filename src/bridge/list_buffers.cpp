#include "bridge/list_buffers.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <functional>

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

/// The bytes from a tensor's first element to its last; it has some.
struct Reach {
  const std::byte *begin, *end;

  explicit Reach(const at::Tensor& tensor)
      : begin(static_cast<const std::byte*>(tensor.const_data_ptr())), end(begin) {
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) {
      last += (tensor.size(d) - 1) * tensor.stride(d);
    }
    end += (last + 1) * tensor.element_size();
  }
};

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
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    raise<ConfigError>(where_, nth(list, i), " overlaps itself: strides ", tensor.strides());
  }
  const bool direct = is_dense(tensor);
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
  if (!indirect_.empty()) check_strided_outputs();
  if (const auto overlap = find_overlap(extents_)) {
    raise<ConfigError>(where_, names_[overlap->first.index], " and ", names_[overlap->second.index],
                       " overlap in memory");
  }
}

// Outputs that a copy stands for are written after all others, and where they really are: between
// the elements of other outputs perhaps, as columns are.
void ListBuffers::check_strided_outputs() {
  const std::less<> before;
  std::vector<std::pair<Reach, std::size_t>> reaches;
  for (std::size_t i = 0; i < written_.size(); ++i) {
    if (written_[i].numel() > 0) reaches.emplace_back(Reach(written_[i]), i);
  }
  std::sort(reaches.begin(), reaches.end(),
            [&](const auto& a, const auto& b) { return before(a.first.begin, b.first.begin); });
  for (std::size_t first = 0; first < reaches.size();) {
    std::vector<std::size_t> together{reaches[first].second};
    Reach all = reaches[first].first;
    while (++first < reaches.size() && before(reaches[first].first.begin, all.end)) {
      all.end = std::max(all.end, reaches[first].first.end, before);
      together.push_back(reaches[first].second);
    }
    if (together.size() > 1) check_apart(together, all.begin, all.end - all.begin);
  }
}

// Whatever lies on the same elements has marked them before. Dense outputs were compared already.
void ListBuffers::check_apart(const std::vector<std::size_t>& together, const std::byte* begin,
                              std::int64_t bytes) {
  std::int64_t unit = bytes;
  bool any_strided = false;
  for (const std::size_t i : together) {
    unit = std::min(unit, written_[i].element_size());
    any_strided = any_strided || !is_dense(written_[i]);
  }
  if (!any_strided) return;
  const at::Tensor marks = at::zeros({bytes / unit}, at::kByte);
  for (const std::size_t i : together) {
    const at::Tensor& output = written_[i];
    std::vector<std::int64_t> sizes = output.sizes().vec();
    std::vector<std::int64_t> strides = output.strides().vec();
    const std::int64_t units = output.element_size() / unit;
    for (std::int64_t& stride : strides) stride *= units;
    sizes.push_back(units);
    strides.push_back(1);
    const at::Tensor own = marks.as_strided(sizes, strides, (Reach(output).begin - begin) / unit);
    if (own.any().item<bool>()) {
      raise<ConfigError>(where_, names_[i], " and another output overlap in memory");
    }
    own.fill_(1);
  }
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
