// Attributes of MXNet's nodes are texts as Python prints them: "(3, 3)", "None", "1e-05", "True".
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "convert/from_mxnet/call.h"
#include "core/raise.h"

namespace mezzo::convert::mxnet {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Without the brackets of pairs in a list: "((1, 2), (3, 4))" is four entries.
std::string_view without_brackets(std::string_view entry) {
  while (!entry.empty() && (entry.front() == '(' || entry.front() == '[')) entry.remove_prefix(1);
  while (!entry.empty() && (entry.back() == ')' || entry.back() == ']')) entry.remove_suffix(1);
  return trimmed(entry);
}

// The entries of "(1, 2)", "[1, 2]", "(1,)" and "1".
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
  // No size is larger, and ends of slices beyond it mean the same.
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (failure == std::errc() && end == text.data() + text.size())
    return std::clamp(value, -kMost, kMost);
  constexpr auto kLargest = static_cast<double>(kMost);
  const auto number = double_of(text);
  if (!number || std::abs(*number) > kLargest || *number != std::floor(*number))
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

}  // namespace

std::optional<std::string_view> Call::written(std::string_view key) const {
  const auto text = node_.attr(key);
  if (!text || trimmed(*text) == "None") return std::nullopt;
  return trimmed(*text);
}

void Call::misread(std::string_view key, std::string_view text, const char* expected) const {
  raise("mxnet", "operator ", node_.op, " (node '", node_.name, "'): the attribute '", key,
        "' is '", text, "'; expected ", expected);
}

bool Call::has(std::string_view key) const {
  return written(key).has_value();
}

std::int64_t Call::integer(std::string_view key, std::int64_t otherwise) const {
  const auto text = written(key);
  if (!text) return otherwise;
  if (*text == "True" || *text == "False") return *text == "True" ? 1 : 0;
  const auto value = integer_of(*text);
  if (!value) misread(key, *text, "a whole number");
  return *value;
}

double Call::number(std::string_view key, double otherwise) const {
  const auto text = written(key);
  if (!text) return otherwise;
  const auto value = double_of(*text);
  if (!value) misread(key, *text, "a number");
  return *value;
}

bool Call::flag(std::string_view key, bool otherwise) const {
  const auto text = written(key);
  if (!text) return otherwise;
  if (*text == "True" || *text == "true" || *text == "1") return true;
  if (*text == "False" || *text == "false" || *text == "0") return false;
  misread(key, *text, "True or False");
}

std::string Call::text(std::string_view key, std::string_view otherwise) const {
  return std::string(written(key).value_or(otherwise));
}

Dims Call::list(std::string_view key, const Dims& otherwise) const {
  const auto text = written(key);
  if (!text) return otherwise;
  Dims values;
  for (const std::string_view entry : entries_of(*text)) {
    const auto value = integer_of(entry);
    if (!value) misread(key, *text, "whole numbers in parentheses");
    values.push_back(*value);
  }
  return values;
}

std::vector<std::optional<std::int64_t>> Call::holes(std::string_view key) const {
  const auto text = written(key);
  std::vector<std::optional<std::int64_t>> values;
  if (!text) return values;
  for (const std::string_view entry : entries_of(*text)) {
    const auto value = entry == "None" ? std::optional<std::int64_t>() : integer_of(entry);
    if (!value && entry != "None") misread(key, *text, "whole numbers or None, in parentheses");
    values.push_back(value);
  }
  return values;
}

std::vector<double> Call::numbers(std::string_view key,
                                  const std::vector<double>& otherwise) const {
  const auto text = written(key);
  if (!text) return otherwise;
  std::vector<double> values;
  for (const std::string_view entry : entries_of(*text)) {
    const auto value = double_of(entry);
    if (!value) misread(key, *text, "numbers in parentheses");
    values.push_back(*value);
  }
  return values;
}

Element Call::dtype(Element otherwise) const {
  const auto text = written("dtype");
  if (!text || *text == "-1") return otherwise;
  constexpr std::array<std::string_view, 7> kCodes{"float32", "float64", "float32", "uint8",
                                                   "int32",   "int8",    "int64"};
  std::string_view name = *text;
  if (const auto code = integer_of(name); code && *code >= 0 && *code < std::ssize(kCodes))
    name = kCodes[static_cast<std::size_t>(*code)];
  if (name == "float16" || name == "bfloat16") return Element::kFloat;
  const auto element = parse_element(name);
  if (!element) misread("dtype", *text, "float32, float64, int8, uint8, int32, int64 or bool");
  return *element;
}

}  // namespace mezzo::convert::mxnet
