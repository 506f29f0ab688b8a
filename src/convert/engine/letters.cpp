#include "convert/engine/letters.h"

#include <clocale>
#include <cstdint>
#include <cwctype>
#include <locale>

namespace mezzo::convert {
namespace {

using Change = wint_t (*)(wint_t, locale_t);

/// A locale that knows all letters; none (ASCII then) on a system without one.
locale_t letters() {
  static const locale_t kLetters = [] {
    for (const char* name : {"C.UTF-8", "C.utf8", "en_US.UTF-8"}) {
      if (const locale_t found = newlocale(LC_CTYPE_MASK, name, nullptr)) return found;
    }
    return newlocale(LC_CTYPE_MASK, "C", nullptr);
  }();
  return kLetters;
}

/// The character at the beginning and how many bytes it has; no bytes if these are no UTF-8.
std::pair<char32_t, std::size_t> character_of(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (size == 0 || first > 0xF4 || size > text.size()) return {0, 0};
  char32_t character = first & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0U) != 0x80) return {0, 0};
    character = character << 6 | (next & 0x3FU);
  }
  return {character, size};
}

std::string changed(std::string_view text, Change change) {
  std::string result;
  while (!text.empty()) {
    const auto [character, size] = character_of(text);
    if (size == 0) {
      result += text[0];
      text.remove_prefix(1);
    } else {
      append_utf8(result, static_cast<char32_t>(change(static_cast<wint_t>(character), letters())));
      text.remove_prefix(size);
    }
  }
  return result;
}

}  // namespace

void append_utf8(std::string& text, char32_t character) {
  const bool is_surrogate = character >= 0xD800 && character < 0xE000;
  if (character > 0x10FFFF || is_surrogate) character = 0xFFFD;
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto rest = [&](int bits) { put(0x80 | (character >> bits & 0x3FU)); };
  if (character < 0x80) return put(character);
  if (character < 0x800) {
    put(0xC0 | character >> 6);
  } else if (character < 0x10000) {
    put(0xE0 | character >> 12);
    rest(6);
  } else {
    put(0xF0 | character >> 18);
    rest(12);
    rest(6);
  }
  rest(0);
}

std::string lower_case(std::string_view text) {
  return changed(text, towlower_l);
}

std::string upper_case(std::string_view text) {
  return changed(text, towupper_l);
}

}  // namespace mezzo::convert
