#include "convert/mxnet/attribute_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace mezzo::convert::mxnet {
namespace {

// Without the brackets of pairs in a list: "((1, 2), (3, 4))" is four entries.
std::string_view without_brackets(std::string_view entry) {
  while (!entry.empty() && (entry.front() == '(' || entry.front() == '[')) entry.remove_prefix(1);
  while (!entry.empty() && (entry.back() == ')' || entry.back() == ']')) entry.remove_suffix(1);
  return trimmed(entry);
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> entries_of(std::string_view text) {
  text = trimmed(text);
  const auto is_pair = [&](char open, char close) {
    return text.size() >= 2 && text.front() == open && text.back() == close;
  };
  if (is_pair('(', ')') || is_pair('[', ']')) text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> entries;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = without_brackets(trimmed(text.substr(0, comma)));
    if (!entry.empty()) entries.push_back(entry);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return entries;
}

std::optional<double> double_of(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> integer_of(std::string_view text) {
  text = trimmed(text);
  if (text.ends_with('L')) text.remove_suffix(1);  // Python 2
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (failure == std::errc() && end == text.data() + text.size())
    return std::clamp(value, -kMost, kMost);
  constexpr auto kLargest = static_cast<double>(kMost);
  const auto number = double_of(text);
  if (!number || std::abs(*number) > kLargest || *number != std::floor(*number))
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<bool> flag_of(std::string_view text) {
  if (text == "True" || text == "true" || text == "1") return true;
  if (text == "False" || text == "false" || text == "0") return false;
  return std::nullopt;
}

std::optional<std::string_view> written(const Node& node, std::string_view key) {
  const auto text = node.attr(key);
  if (!text || trimmed(*text) == "None") return std::nullopt;
  return trimmed(*text);
}

}  // namespace mezzo::convert::mxnet
