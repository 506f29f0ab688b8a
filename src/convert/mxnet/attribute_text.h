// Attributes of MXNet's nodes are texts as Python prints them: "(3, 3)", "None", "1e-05", "True".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mezzo/convert_mxnet.h"

namespace mezzo::convert::mxnet {

/// The text without space around it.
std::string_view trimmed(std::string_view text);

/// The entries of "(1, 2)", "[1, 2]", "(1,)" and "1", without brackets of their own.
std::vector<std::string_view> entries_of(std::string_view text);

/// The number that the whole text is.
std::optional<double> double_of(std::string_view text);

/// The whole number that the text is, in Python 2's spelling too, at most 2^31 either way: no size
/// is larger, and ends of slices beyond it mean the same.
std::optional<std::int64_t> integer_of(std::string_view text);

/// The truth value that the text is.
std::optional<bool> flag_of(std::string_view text);

/// The attribute's text; nothing if it is not written, or None.
std::optional<std::string_view> written(const Node& node, std::string_view key);

}  // namespace mezzo::convert::mxnet
