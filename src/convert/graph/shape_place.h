// The subject of the shape rules: one output of one node.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "convert/graph/shape_rules.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/tensor.h"

namespace mezzo::convert {

using Shape = std::optional<Dims>;

inline constexpr std::uint64_t kMostListed = 64;  // elements of a constant that gives a shape
/// Dimensions and what they are computed from stay within, so that no product of two overflows.
inline constexpr std::int64_t kLargestDim = std::int64_t{1} << 30;

inline std::int64_t bounded(std::int64_t value) {
  return std::clamp(value, -kLargestDim, kLargestDim);
}

/// One output of one node, with what is known about its inputs.
class Place {
 public:
  Place(const Graph& graph, const Node& node, std::size_t index, const KnownShapes& known)
      : output(index), node_(node), graph_(graph), known_(known) {}

  const std::size_t output;

  std::size_t inputs() const { return node_.inputs.size(); }
  std::int64_t opset() const { return node_.opset; }
  const Shape& in(std::size_t i) const {
    static const Shape kNothing;
    if (i >= node_.inputs.size() || node_.inputs[i] == kNone) return kNothing;
    return known_[static_cast<std::size_t>(node_.inputs[i])];
  }
  bool has(std::size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNone; }

  std::int64_t integer(std::string_view name, std::int64_t otherwise) const {
    return bounded(graph_.integer(node_, name, otherwise));
  }
  Dims integers(std::string_view name) const {
    const Message* found = graph_.attribute(node_, name);
    Dims values;
    if (found != nullptr) values = repeated_integers(*found, field::attribute::kInts);
    for (std::int64_t& value : values) value = bounded(value);
    return values;
  }
  std::string text(std::string_view name) const { return graph_.attribute_text(node_, name); }
  bool is_given(std::string_view name) const { return graph_.attribute(node_, name) != nullptr; }

  /// The values of a constant input.
  std::optional<std::vector<double>> numbers(std::size_t i) const {
    const Message* tensor = has(i) ? graph_.constant(node_.inputs[i]) : nullptr;
    if (tensor == nullptr) return std::nullopt;
    const Tensor read = read_tensor(graph_.document(), *tensor);
    if (read.count > kMostListed) return std::nullopt;
    return small_values(read, kMostListed);
  }
  Shape list(std::size_t i) const {
    const auto values = numbers(i);
    if (!values) return std::nullopt;
    Dims list;
    constexpr auto kLimit = static_cast<double>(kLargestDim);
    for (const double value : *values) {
      list.push_back(std::isnan(value)
                         ? kUnknownDim
                         : static_cast<std::int64_t>(std::clamp(value, -kLimit, kLimit)));
    }
    return list;
  }
  /// An attribute of old opsets that is an input in new ones; empty if it is left out.
  Shape listed(std::string_view name, std::size_t i) const {
    if (is_given(name)) return integers(name);
    return has(i) ? list(i) : Dims();
  }
  /// One value per axis of a window; `otherwise` where the attribute is left out.
  Dims spatial(std::string_view name, std::size_t rank, std::int64_t otherwise) const {
    Dims values = integers(name);
    values.resize(rank, otherwise);
    return values;
  }

 private:
  const Node& node_;
  const Graph& graph_;
  const KnownShapes& known_;
};

/// Counts a negative axis from the end; false if there is no such axis.
inline bool wrap(std::int64_t& axis, std::size_t rank) {
  const auto size = static_cast<std::int64_t>(rank);
  if (axis < 0) axis += size;
  return axis >= 0 && axis < size;
}

inline std::int64_t& at(Dims& dims, std::int64_t axis) {
  return dims[static_cast<std::size_t>(axis)];
}

/// f(dim), where the dimension is known.
template <typename Function>
void change(std::int64_t& dim, const Function& f) {
  if (dim != kUnknownDim) dim = std::max<std::int64_t>(f(dim), 0);
}

/// Unknown where a factor is, or where it is too large.
inline std::int64_t product(std::int64_t a, std::int64_t b) {
  if (a == kUnknownDim || b == kUnknownDim) return kUnknownDim;
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) || result > kLargestDim ? kUnknownDim : result;
}

inline std::int64_t product(Dims::const_iterator from, Dims::const_iterator to) {
  return std::accumulate(from, to, std::int64_t{1},
                         [](std::int64_t a, std::int64_t b) { return product(a, b); });
}

// shape_products.cpp
Shape convolution_shape(const Place&);
Shape pooling_shape(const Place&);
Shape transposed_convolution_shape(const Place&);
Shape global_pooling_shape(const Place&);
Shape matrix_product_shape(const Place&);
Shape gemm_shape(const Place&);
Shape recurrent_shape(const Place&);

// shape_views.cpp
Shape reshape_shape(const Place&);
Shape flatten_shape(const Place&);
Shape transpose_shape(const Place&);
Shape squeeze_shape(const Place&);
Shape unsqueeze_shape(const Place&);

}  // namespace mezzo::convert
