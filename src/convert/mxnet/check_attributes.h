// Attributes of a node, held against what its operator reads.
#pragma once

#include <optional>
#include <string>

#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// The first fault of a node's attributes, as the end of a message; nothing if MXNet can read them,
/// or the operator is not known. `is_newer`: the graph is of MXNet 2.x, which has more attributes,
/// and more words for some.
std::optional<std::string> fault_of_attributes(const Node& node, bool is_newer);

/// Attributes that the operator does not have and that are nearly one of its own, each with that
/// one, as the end of a message; nothing if there are none, or the operator is not known.
std::optional<std::string> misspelled_attributes(const Node& node);

}  // namespace mezzo::convert::mxnet
