// Shapes of the same elements in another arrangement.
#include <algorithm>

#include "convert/graph/shape_place.h"

namespace mezzo::convert {

Shape reshape_shape(const Place& p) {
  Shape dims = p.listed("shape", 1);
  if (!dims) return dims;
  const bool copies = p.integer("allowzero", 0) == 0;
  for (std::size_t i = 0; i < dims->size() && copies; ++i) {
    if ((*dims)[i] != 0) continue;
    (*dims)[i] = p.in(0) && i < p.in(0)->size() ? (*p.in(0))[i] : kUnknownDim;
  }
  const auto open = std::ranges::find(*dims, kUnknownDim);
  if (open == dims->end() || !p.in(0)) return dims;
  const std::int64_t all = product(p.in(0)->begin(), p.in(0)->end());
  *open = 1;
  const std::int64_t others = product(dims->begin(), dims->end());
  *open = all == kUnknownDim || others <= 0 ? kUnknownDim : all / others;
  return dims;
}

Shape flatten_shape(const Place& p) {
  if (!p.in(0)) return std::nullopt;
  std::int64_t axis = p.integer("axis", 1);
  const auto rank = static_cast<std::int64_t>(p.in(0)->size());
  if (axis < 0) axis += rank;
  const auto middle = p.in(0)->begin() + std::clamp<std::int64_t>(axis, 0, rank);
  return Dims{product(p.in(0)->begin(), middle), product(middle, p.in(0)->end())};
}

Shape transpose_shape(const Place& p) {
  if (!p.in(0)) return std::nullopt;
  const Dims order = p.integers("perm");
  if (order.empty()) return Dims(p.in(0)->rbegin(), p.in(0)->rend());
  Dims dims;
  for (std::int64_t axis : order) {
    if (!wrap(axis, p.in(0)->size())) return std::nullopt;
    dims.push_back((*p.in(0))[static_cast<std::size_t>(axis)]);
  }
  return dims;
}

Shape squeeze_shape(const Place& p) {
  const Shape axes = p.listed("axes", 1);
  if (!p.in(0) || !axes) return std::nullopt;
  Dims dims = *p.in(0);
  if (axes->empty()) {
    std::erase(dims, 1);
    return dims;
  }
  std::vector<bool> goes(dims.size());
  for (std::int64_t axis : *axes) {
    if (!wrap(axis, dims.size())) return std::nullopt;
    goes[static_cast<std::size_t>(axis)] = true;
  }
  Dims left;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (!goes[i]) left.push_back(dims[i]);
  }
  return left;
}

Shape unsqueeze_shape(const Place& p) {
  Shape axes = p.listed("axes", 1);
  if (!p.in(0) || !axes) return std::nullopt;
  Dims dims = *p.in(0);
  const std::size_t rank = dims.size() + axes->size();
  for (std::int64_t& axis : *axes) {
    if (!wrap(axis, rank)) return std::nullopt;
  }
  std::ranges::sort(*axes);
  for (const std::int64_t axis : *axes) {
    if (axis > static_cast<std::int64_t>(dims.size())) return std::nullopt;
    dims.insert(dims.begin() + axis, 1);
  }
  return dims;
}

}  // namespace mezzo::convert
