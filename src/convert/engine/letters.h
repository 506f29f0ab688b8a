// Letters of Unicode, in UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace mezzo::convert {

/// Appends a character; U+FFFD in place of a number that is none.
void append_utf8(std::string& text, char32_t character);

/// The text in small or in capital letters. Bytes that are no UTF-8 stay as they are.
std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

}  // namespace mezzo::convert
