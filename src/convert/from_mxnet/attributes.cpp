// Attributes as the values that a translation asks for.
#include <array>

#include "convert/from_mxnet/call.h"
#include "convert/mxnet/attribute_text.h"
#include "core/raise.h"

namespace mezzo::convert::mxnet {
std::optional<std::string_view> Call::written(std::string_view key) const {
  return mxnet::written(node_, key);
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
  const auto value = flag_of(*text);
  if (!value) misread(key, *text, "True or False");
  return *value;
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
