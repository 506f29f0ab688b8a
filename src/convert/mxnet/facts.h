// Facts about MXNet's operators beside their classes: which inputs have types of their own,
// and how many results there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// The role of an input for the types of its operator.
enum class Role : std::uint8_t {
  kData,       ///< has the operator's type
  kFloat,      ///< float32, even where the data is in 16 bits: factors of batch normalization
  kStatistic,  ///< the same, and written by the operator
  kOwn,        ///< a type of its own: indices, labels, lengths, shapes
};

Role role_of(const Node& node, std::size_t input);

/// How many results a node has, as far as its operator and attributes show; 1 if nothing is
/// known.
std::uint32_t output_count(const Node& node);

/// Does the operator have one type for its data and its results, so that it can run in 16 bits?
/// Operators that nothing here knows, and those with bodies, do not.
bool has_one_type(const Node& node);

/// Was the node made under 2.x's OptConstraint.disable_amp(), which the file keeps as a bit?
bool disables_amp(const Node& node);

/// Does the operator give indices, shapes, or numbers of a type that an attribute names?
bool has_type_of_its_own(std::string_view op);

}  // namespace mezzo::convert::mxnet
