// concat({a, b, c}): one string from several pieces.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace mezzo::convert {

inline std::string concat(std::initializer_list<std::string_view> pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text.append(piece);
  return text;
}

}  // namespace mezzo::convert
