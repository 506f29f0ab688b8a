// Tensors as a model stores them: what they are, and their values wherever these stand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "convert/onnx/array.h"
#include "convert/onnx/document.h"
#include "convert/onnx/element.h"
#include "convert/onnx/low.h"

namespace mezzo::convert {

/// A TensorProto, taken apart. Views into the document.
struct Tensor {
  std::string_view name;
  Element element = Element::kUndefined;
  std::vector<std::int64_t> dims;
  std::uint64_t count = 0;  // product of dims; 1 for a scalar
  bool is_external = false;
  std::string_view raw;  // raw_data or the external bytes, where it stands that way
  const Message* message = nullptr;
};

/// Throws Error if sizes contradict each other. External data is opened.
Tensor read_tensor(Document&, const Message& tensor);

/// Does the tensor itself, whatever is declared about it, hold float32?
bool is_float_tensor(const Message& tensor);

/// Calls `visit` with the values of a float32 tensor, in chunks, in order. Missing data gives
/// nothing.
void for_each_chunk(const Tensor&, const std::function<void(std::span<const float>)>& visit);

/// All values of an integer or float tensor as doubles; for small tensors (at most `limit`
/// elements, otherwise nothing).
std::vector<double> small_values(const Tensor&, std::uint64_t limit);

/// All values of a tensor, however they are stored. Throws UnsupportedError for strings and types
/// of less than a byte.
Array array_of(Document&, const Message& tensor);

/// The payload of a float32 tensor, brought between bounds and rounded to float16 or bfloat16 while
/// it is written.
std::shared_ptr<const Content> rounded_content(Document&, const Tensor&, Element low,
                                               const Bounds& bounds = {});

/// A copy of a tensor with everything but its values.
Message without_values(const Message& tensor);

/// A copy of a float32 tensor with the element type `low`, under another name (empty: the same).
/// The values stand in raw_data. Throws Error if it is no float32 tensor.
Message rounded_tensor(Document&, const Message& tensor, Element low, std::string_view name,
                       const Bounds& bounds = {});

}  // namespace mezzo::convert
