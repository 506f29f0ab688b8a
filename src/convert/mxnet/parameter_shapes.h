// Which shapes an operator of MXNet's wants of its parameters, as far as attributes and what is
// known of its data say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// Sizes, -1 where one is not known; nothing where not even their number is.
using KnownShape = std::optional<std::vector<std::int64_t>>;

/// A node's inputs that do not fit each other.
struct Misfit {
  std::optional<std::size_t> input = {};  ///< nothing: an attribute is at fault
  std::string expected = {};              ///< "(4, ?, 3, 3)", or what else would fit
};

/// The shapes around a node.
struct Shapes {
  std::vector<KnownShape> inputs = {}, outputs = {};
  std::optional<Misfit> misfit = {};
};

/// Does the operator read this tensor, by its name in MXNet's documentation, as a parameter, which
/// a file must hold?
bool is_parameter(std::string_view op, std::string_view tensor);

/// The names of the tensors that a node reads, in order; nothing where their number is not fixed,
/// or the operator is not known.
std::optional<std::vector<std::string_view>> tensors_of(const Node& node);

/// Looks for a misfit, and says what is known of the outputs. Attributes must be readable.
Shapes fitted(const Node& node, std::vector<KnownShape> inputs);

/// "(4, ?, 3, 3)".
std::string text_of(const std::vector<std::int64_t>& sizes);

}  // namespace mezzo::convert::mxnet
