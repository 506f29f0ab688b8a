// Arrays in memory: samples that are fed to a model, and what comes out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convert/onnx/element.h"

namespace mezzo::convert {

/// A dense array, row-major. Strings are codes of 64 bits (texts.h).
struct Array {
  Element element = Element::kUndefined;
  std::vector<std::int64_t> dims;
  std::string bytes;

  std::uint64_t count() const;
  /// All elements as doubles: floats of every width, integers, booleans. None of strings.
  std::vector<double> values() const;
};

/// Bytes that an array has for each element; 0 as size_of() says, but for strings.
std::size_t stored_size_of(Element);

/// The elements of a float32 array, where they stand.
std::span<const float> floats_of(const Array&);
std::span<float> floats_of(Array&);

/// The same values in another floating type; float32, float16 and bfloat16 only.
Array converted(const Array&, Element);

}  // namespace mezzo::convert
