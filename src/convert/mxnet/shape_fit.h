// A node of MXNet while the shapes around it are held against each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/mxnet/attribute_text.h"
#include "convert/mxnet/parameter_shapes.h"

namespace mezzo::convert::mxnet {

using Sizes = std::vector<std::int64_t>;
constexpr std::int64_t kAny = -1;

/// The product; -1 where a factor is not known, or there are too many.
inline std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? kAny : product;
}

/// Attributes as values, inputs as shapes; the first misfit counts.
class Fit {
 public:
  Fit(const Node& node, std::vector<KnownShape> inputs)
      : node_(node), shapes_{std::move(inputs), std::vector<KnownShape>(node.outputs), {}} {}

  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    const auto text = written(node_, key);
    return text ? integer_of(*text).value_or(otherwise) : otherwise;
  }
  bool flag(std::string_view key, bool otherwise = false) const {
    const auto text = written(node_, key);
    return text ? flag_of(*text).value_or(otherwise) : otherwise;
  }
  std::string_view word(std::string_view key) const { return written(node_, key).value_or(""); }
  Sizes sizes(std::string_view key) const {
    Sizes sizes;
    const auto text = written(node_, key);
    if (!text) return sizes;
    for (const std::string_view entry : entries_of(*text))
      sizes.push_back(integer_of(entry).value_or(kAny));
    return sizes;
  }

  std::size_t count() const { return shapes_.inputs.size(); }
  const KnownShape& input(std::size_t i) const {
    static const KnownShape kNothing;
    return i < shapes_.inputs.size() ? shapes_.inputs[i] : kNothing;
  }
  bool has_rank(std::size_t i, std::size_t rank) const {
    return input(i) && input(i)->size() == rank;
  }
  /// A size counted from the front, or from the end; -1 where it is not known.
  std::int64_t size(std::size_t i, std::int64_t axis) const {
    const KnownShape& shape = input(i);
    if (!shape) return kAny;
    const auto rank = static_cast<std::int64_t>(shape->size());
    if (axis < 0) axis += rank;
    return axis < 0 || axis >= rank ? kAny : (*shape)[static_cast<std::size_t>(axis)];
  }

  /// A misfit where the input is known and is something else; -1 fits any size.
  void want(std::size_t i, const Sizes& sizes) {
    const KnownShape& shape = input(i);
    if (!shape) return;
    bool fits = shape->size() == sizes.size();
    for (std::size_t d = 0; fits && d < sizes.size(); ++d)
      fits = sizes[d] < 0 || (*shape)[d] < 0 || sizes[d] == (*shape)[d];
    if (!fits) refuse(i, text_of(sizes));
  }
  void refuse(std::optional<std::size_t> i, std::string expected) {
    if (!shapes_.misfit) shapes_.misfit = {i, std::move(expected)};
  }
  void gives(KnownShape shape) {
    if (!shapes_.outputs.empty()) shapes_.outputs.front() = std::move(shape);
  }
  void gives_all(const std::vector<KnownShape>& shapes) {
    for (std::size_t i = 0; i < std::min(shapes.size(), shapes_.outputs.size()); ++i)
      shapes_.outputs[i] = shapes[i];
  }
  const std::vector<KnownShape>& inputs() const { return shapes_.inputs; }
  Shapes take() { return std::move(shapes_); }

 private:
  const Node& node_;
  Shapes shapes_;
};

}  // namespace mezzo::convert::mxnet
