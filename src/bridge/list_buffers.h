// Lists of tensors as kernel buffers, checked. If a tensor is not dense, or not laid out as the
// output it belongs to, a dense copy stands for it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bridge/overlap.h"
#include "core/torch.h"
#include "kernels/buffers.h"

namespace mezzo::bridge {

/// "in[3]": how errors name a tensor.
std::string nth(const char* list, std::size_t i);

/// Throws ConfigError unless both lists have as many tensors.
void check_lengths(std::string_view where, const char* a, at::TensorList list_a, const char* b,
                   at::TensorList list_b);

/// The buffers of one call, whose tensors are all on one device. Outputs come first. Every member
/// throws ConfigError if a tensor does not fit.
class ListBuffers {
 public:
  /// `where` names the caller in errors.
  explicit ListBuffers(std::string_view where) : where_(where) {}

  void add_outputs(const char* name, at::TensorList list);
  /// Tensors that are only read.
  std::vector<kernels::Input> inputs(const char* name, at::TensorList list);
  /// Tensors that are read for the outputs, one by one: of their sizes, laid out as they are.
  std::vector<kernels::Input> inputs_for_outputs(const char* name, at::TensorList list);

  /// No output may overlap another tensor, but an output may be its own input.
  void check_overlaps();

  /// Copies what is in such outputs into the dense copies, for calls that may write nothing.
  void read_outputs();

  /// Copies into outputs that a dense copy stood for, and bumps the versions of all.
  void write_back();

  const at::Device& device() const { return device_; }

  std::vector<kernels::Output> outputs;

 private:
  void add_output(const char* list, std::size_t i, const at::Tensor& tensor);
  kernels::Input input(const char* list, std::size_t i, const at::Tensor& tensor,
                       const at::Tensor* like);
  void check_device(const char* list, std::size_t i, const at::Tensor& tensor);

  std::string_view where_;
  at::Device device_{at::kCPU};
  bool any_ = false;
  std::vector<at::Tensor> standins_, held_, written_;
  std::vector<std::pair<at::Tensor, at::Tensor>> indirect_;
  std::vector<Extent> extents_;
  std::vector<std::string> names_;
};

}  // namespace mezzo::bridge
