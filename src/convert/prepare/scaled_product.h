// Conv, ConvTranspose, Gemm and MatMul with constant weights, seen as what a factor and a shift per
// output channel can be multiplied into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/graph/constants.h"
#include "convert/graph/graph.h"

namespace mezzo::convert {

/// factor * x + shift, per channel.
struct Affine {
  std::vector<double> factor, shift;

  std::size_t channels() const { return factor.size(); }
  /// This one and then the other; both have as many channels.
  Affine then(const Affine& next) const;
};

/// The values of a float32 constant.
std::vector<float> floats_of(const Graph&, ValueId constant);

/// How weights are laid out: as [outer, inner, rest], where output channel
/// (outer / per_group) * inner + i reads row i.
struct WeightLayout {
  std::int64_t outer = 1, inner = 1, rest = 1, per_group = 1;

  std::int64_t channels() const { return outer / per_group * inner; }
};

/// A product whose weights may be changed.
struct Product {
  WeightLayout layout;
  double bias_factor = 1;  // Gemm's beta
};

/// The product that a node is. Where it is none that a factor can be multiplied into: nothing, and
/// `why` says why.
std::optional<Product> product_of(const Graph&, const Constants&, const Node&, std::string* why);

/// Weights and bias of a product.
struct Scaled {
  std::vector<float> weights, bias;
};

/// The product followed by the affine function, as another product without a factor of the bias;
/// nothing if a value would leave float32's range.
std::optional<Scaled> scaled(const Graph&, const Node&, const Product&, const Affine&);

}  // namespace mezzo::convert
