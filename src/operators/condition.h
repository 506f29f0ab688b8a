// The values of a condition: an operator runs in float where an argument has one of them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mezzo {

/// Is an argument, given as text, one of the values? Numbers are equal as numbers of single
/// precision ("1", "1.0"; "1e-5", "0.00001"), truth values and None whatever their case ("True",
/// "true"), lists whatever their blanks and brackets ("(1, 1)", "[1,1]"), other texts letter by
/// letter.
bool is_condition_value(std::string_view argument, std::span<const std::string> values);

}  // namespace mezzo
