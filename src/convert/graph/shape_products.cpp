// Shapes of convolutions, pooling, matrix products and recurrent layers.
#include "convert/graph/shape_place.h"

namespace mezzo::convert {
namespace {

// Convolutions and pooling: the window moves over the axes from 2 on.
Shape windowed(const Place& p, const Dims& kernel) {
  Dims dims = *p.in(0);
  const std::size_t rank = kernel.size();
  if (dims.size() != rank + 2) return std::nullopt;
  const Dims strides = p.spatial("strides", rank, 1);
  const Dims dilations = p.spatial("dilations", rank, 1);
  const Dims pads = p.spatial("pads", 2 * rank, 0);
  const std::string automatic = p.text("auto_pad");
  const bool ceils = p.integer("ceil_mode", 0) != 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = std::max<std::int64_t>(strides[i], 1);
    change(dims[i + 2], [&](std::int64_t size) {
      if (automatic.starts_with("SAME")) return (size + stride - 1) / stride;
      const std::int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      const std::int64_t room = size + pads[i] + pads[i + rank] - reach;
      return (room + (ceils ? stride - 1 : 0)) / stride + 1;
    });
  }
  return dims;
}

Dims kernel_of(const Place& p) {
  Dims kernel = p.integers("kernel_shape");
  if (kernel.empty() && p.in(1) && p.in(1)->size() > 2) {
    kernel.assign(p.in(1)->begin() + 2, p.in(1)->end());
  }
  return kernel;
}

}  // namespace

Shape convolution_shape(const Place& p) {
  if (!p.in(0) || !p.in(1) || p.in(1)->empty()) return std::nullopt;
  Shape dims = windowed(p, kernel_of(p));
  if (dims) (*dims)[1] = p.in(1)->front();
  return dims;
}

Shape pooling_shape(const Place& p) {
  return p.in(0) ? windowed(p, p.integers("kernel_shape")) : std::nullopt;
}

Shape transposed_convolution_shape(const Place& p) {
  if (!p.in(0) || !p.in(1)) return std::nullopt;
  Dims dims = *p.in(0);
  const Dims kernel = kernel_of(p);
  const std::size_t rank = kernel.size();
  if (rank == 0 || dims.size() != rank + 2 || p.in(1)->size() != rank + 2) return std::nullopt;
  const Dims strides = p.spatial("strides", rank, 1);
  const Dims dilations = p.spatial("dilations", rank, 1);
  const Dims pads = p.spatial("pads", 2 * rank, 0);
  const Dims extra = p.spatial("output_padding", rank, 0);
  const Dims asked = p.integers("output_shape");
  const bool same = p.text("auto_pad").starts_with("SAME");
  dims[1] = product((*p.in(1))[1], p.integer("group", 1));
  for (std::size_t i = 0; i < rank; ++i) {
    change(dims[i + 2], [&](std::int64_t size) {
      if (asked.size() >= rank) return asked[asked.size() - rank + i];
      if (same) return size * strides[i];
      const std::int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      return strides[i] * (size - 1) + extra[i] + reach - pads[i] - pads[i + rank];
    });
  }
  return dims;
}

Shape global_pooling_shape(const Place& p) {
  Shape dims = p.in(0);
  if (dims && dims->size() > 2) std::fill(dims->begin() + 2, dims->end(), 1);
  return dims;
}

Shape matrix_product_shape(const Place& p) {
  if (!p.in(0) || !p.in(1) || p.in(0)->empty() || p.in(1)->empty()) return std::nullopt;
  Dims a = *p.in(0);
  Dims b = *p.in(1);
  const bool is_row = a.size() == 1;
  const bool is_column = b.size() == 1;
  if (is_row) a.insert(a.begin(), 1);
  if (is_column) b.push_back(1);
  Dims dims = broadcast(Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2));
  if (!is_row) dims.push_back(a[a.size() - 2]);
  if (!is_column) dims.push_back(b.back());
  return dims;
}

Shape gemm_shape(const Place& p) {
  if (!p.in(0) || !p.in(1) || p.in(0)->size() != 2 || p.in(1)->size() != 2) return std::nullopt;
  return Dims{(*p.in(0))[p.integer("transA", 0) != 0 ? 1 : 0],
              (*p.in(1))[p.integer("transB", 0) != 0 ? 0 : 1]};
}

// X is [steps, batch, size], or (layout 1) [batch, steps, size]; all outputs have one row per
// direction and unit.
Shape recurrent_shape(const Place& p) {
  const std::int64_t hidden = p.integer("hidden_size", kUnknownDim);
  if (!p.in(0) || p.in(0)->size() != 3) return std::nullopt;
  const std::int64_t ways = p.text("direction") == "bidirectional" ? 2 : 1;
  const Dims& x = *p.in(0);
  if (p.integer("layout", 0) != 0)
    return p.output == 0 ? Dims{x[0], x[1], ways, hidden} : Dims{x[0], ways, hidden};
  return p.output == 0 ? Dims{x[0], ways, x[1], hidden} : Dims{ways, x[1], hidden};
}

}  // namespace mezzo::convert
