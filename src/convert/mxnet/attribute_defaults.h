// The values that attributes of MXNet's operators have where a symbol leaves them out.
#pragma once

#include <optional>
#include <string_view>

namespace mezzo::convert::mxnet {

/// As MXNet's registry writes it: "1", "leaky", "False", "None", "[]". Nothing where the attribute
/// must be given, or nobody knows the operator.
std::optional<std::string_view> default_of(std::string_view op, std::string_view attribute);

}  // namespace mezzo::convert::mxnet
