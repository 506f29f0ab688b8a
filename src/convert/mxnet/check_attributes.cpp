#include "convert/mxnet/check_attributes.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "convert/mxnet/attribute_text.h"
#include "convert/mxnet/operator_table.h"
#include "core/nearest.h"

namespace mezzo::convert::mxnet {
namespace {

bool is_whole(std::string_view text) {
  if (text.ends_with('L')) text.remove_suffix(1);  // Python 2
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return end == text.data() + text.size() && !text.empty() &&
         failure != std::errc::invalid_argument;
}

bool is_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return end == text.data() + text.size() && failure != std::errc::invalid_argument;
}

// "(1, 2)", "[1, 2]", "(1,)", "()" and "1", as MXNet reads them: one pair of brackets, one comma
// between each two.
bool is_list(std::string_view text, bool (*is_entry)(std::string_view)) {
  if (is_entry(text)) return true;
  if (text.size() < 2) return false;
  const char open = text.front();
  if (!(open == '(' && text.back() == ')') && !(open == '[' && text.back() == ']')) return false;
  text = trimmed(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = trimmed(text.substr(0, comma));
    if (entry != "None" && !is_entry(entry)) return false;
    if (comma == std::string_view::npos) break;
    text = trimmed(text.substr(comma + 1));
  }
  return true;
}

bool has_entry(std::string_view words, std::string_view word) {
  for (;;) {
    const std::size_t comma = words.find(',');
    if (words.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    words.remove_prefix(comma + 1);
  }
}

// Words that 2.x has besides. Graphs that were made in memory do not say their release.
struct LaterWords {
  std::string_view op, attribute, words;
};
constexpr LaterWords kLaterWords[] = {{"Activation", "act_type", "log_sigmoid,mish"},
                                      {"LeakyReLU", "act_type", "gelu_erf,gelu_tanh"},
                                      {"Convolution", "layout", "NWC"}};

bool is_later_word(std::string_view op, std::string_view attribute, std::string_view word) {
  return std::ranges::any_of(kLaterWords, [&](const LaterWords& each) {
    return each.op == op && each.attribute == attribute && has_entry(each.words, word);
  });
}

bool can_read(std::string_view op, const AttributeFacts& facts, std::string_view text,
              bool is_newer) {
  const std::string_view value = trimmed(text);
  if (value == "None" && (facts.may_be_none || is_newer)) return true;
  switch (facts.kind) {
    case AttributeKind::kFlag:
      return flag_of(value).has_value() || value == "TRUE" || value == "FALSE";
    case AttributeKind::kWhole:
      return is_whole(value) || value == "True" || value == "False";
    case AttributeKind::kCount:
      return is_whole(value) && !value.starts_with('-');
    case AttributeKind::kNumber:
      return is_number(value);
    case AttributeKind::kSizes:
      return value == "None" || is_list(value, is_whole);
    case AttributeKind::kNumbers:
      return is_list(value, is_number);
    case AttributeKind::kWord:
      return is_newer || has_entry(facts.words, value) || is_later_word(op, facts.name, value);
    case AttributeKind::kText:
      return true;
  }
  return true;
}

std::string expected(const AttributeFacts& facts) {
  switch (facts.kind) {
    case AttributeKind::kFlag:
      return "True or False";
    case AttributeKind::kWhole:
      return "a whole number";
    case AttributeKind::kCount:
      return "a whole number from 0";
    case AttributeKind::kNumber:
      return "a number";
    case AttributeKind::kSizes:
      return "whole numbers in parentheses, such as (3, 3)";
    case AttributeKind::kNumbers:
      return "numbers in parentheses, such as (0.5, 1)";
    case AttributeKind::kWord:
      return "one of " + std::string(facts.words);
    case AttributeKind::kText:
      break;
  }
  return "a text";
}

bool is_hidden(std::string_view key) {
  return key.starts_with("__") && key.ends_with("__");
}

// The written attribute that was probably meant for one that is missing.
std::string meant_for(const Node& node, const OperatorFacts& facts, std::string_view missing) {
  for (const auto& [key, value] : node.attrs) {
    const auto names = std::ranges::find(facts.attributes, key, &AttributeFacts::name);
    if (is_hidden(key) || names != facts.attributes.end()) continue;
    const std::vector<std::string_view> one{missing};
    if (!nearest(key, one).empty()) return "; '" + key + "' is written, which it does not have";
  }
  return {};
}

}  // namespace

std::optional<std::string> fault_of_attributes(const Node& node, bool is_newer) {
  const OperatorFacts* facts = find_operator(node.op);
  if (facts == nullptr) return std::nullopt;
  for (const AttributeFacts& attribute : facts->attributes) {
    const auto text = node.attr(attribute.name);
    const std::string name(attribute.name);
    const bool is_implied = attribute.name == "num_args";  // by the inputs
    if (!text && attribute.is_required && !is_implied && !is_newer)
      return "the attribute '" + name + "' is missing; expected " + expected(attribute) +
             meant_for(node, *facts, attribute.name);
    if (text && !can_read(facts->name, attribute, *text, is_newer))
      return "the attribute '" + name + "' is '" + std::string(*text) + "'; expected " +
             expected(attribute);
  }
  return std::nullopt;
}

std::optional<std::string> misspelled_attributes(const Node& node) {
  const OperatorFacts* facts = find_operator(node.op);
  if (facts == nullptr) return std::nullopt;
  std::vector<std::string_view> names;
  for (const AttributeFacts& attribute : facts->attributes) names.push_back(attribute.name);
  std::string text;
  for (const auto& [key, value] : node.attrs) {
    if (is_hidden(key) || std::ranges::find(names, key) != names.end()) continue;
    // Scopes of attributes leave others' words on nodes, which mean nothing to the operator.
    const std::string meant = did_you_mean(key, names);
    if (!meant.empty()) text += (text.empty() ? "'" : ", '") + key + "'" + meant;
  }
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace mezzo::convert::mxnet
