#include "operators/condition.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace mezzo {
namespace {

std::optional<float> number_of(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return {};
  // Tables of defaults write numbers of single precision with nine digits.
  return static_cast<float>(number);
}

std::string lower_case_of(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return lower;
}

bool is_word(std::string_view lower) {
  return lower == "true" || lower == "false" || lower == "none";
}

/// A list without blanks and in round brackets; nothing if the text is none.
std::optional<std::string> list_of(std::string_view text) {
  std::string list;
  for (const char letter : text) {
    if (letter != ' ') list += letter;
  }
  if (list.size() < 2) return {};
  const bool is_list =
      (list.front() == '(' && list.back() == ')') || (list.front() == '[' && list.back() == ']');
  if (!is_list) return {};
  list.front() = '(';
  list.back() = ')';
  return list;
}

bool is_same(std::string_view one, std::string_view other) {
  if (one == other) return true;
  if (const auto number = number_of(one)) return number == number_of(other);
  if (const auto list = list_of(one)) return list == list_of(other);
  const std::string lower = lower_case_of(one);
  return is_word(lower) && lower == lower_case_of(other);
}

}  // namespace

bool is_condition_value(std::string_view argument, std::span<const std::string> values) {
  return std::ranges::any_of(values,
                             [&](const std::string& value) { return is_same(argument, value); });
}

}  // namespace mezzo
