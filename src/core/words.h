// Lists of names as one text: the words of tables, with a space between each two.
#pragma once

#include <algorithm>
#include <string_view>

namespace mezzo {

/// Calls visit(word) for each, in order.
template <typename Visit>
constexpr void each_word(std::string_view words, const Visit& visit) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    visit(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

/// Is the name one of them?
constexpr bool has_word(std::string_view words, std::string_view name) {
  bool found = false;
  each_word(words, [&](std::string_view word) { found = found || word == name; });
  return found;
}

}  // namespace mezzo
