#include "convert/mxnet/operator_table.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "convert/mxnet/numpy_operators.h"
#include "core/nearest.h"
#include "core/words.h"
#include "operators/mxnet_lists_table.h"

namespace mezzo::convert::mxnet {
namespace {

struct OperatorRow {
  std::string_view name, tensors, attributes;
};

struct OperatorAlias {
  std::string_view name, own;
};

#include "convert/mxnet/operator_table.inc"

AttributeKind kind_named(char letter) {
  switch (letter) {
    case 'b':
      return AttributeKind::kFlag;
    case 'i':
      return AttributeKind::kWhole;
    case 'u':
      return AttributeKind::kCount;
    case 'f':
      return AttributeKind::kNumber;
    case 't':
      return AttributeKind::kSizes;
    case 'd':
      return AttributeKind::kNumbers;
    case '{':
      return AttributeKind::kWord;
    default:
      return AttributeKind::kText;
  }
}

// NAME:KIND, as the table has it.
AttributeFacts attribute_of(std::string_view text) {
  AttributeFacts facts;
  const std::size_t colon = text.find(':');
  facts.name = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  facts.is_required = text.ends_with('!');
  if (facts.is_required) text.remove_suffix(1);
  facts.may_be_none = text.ends_with('?');
  facts.kind = kind_named(text.front());
  if (facts.kind == AttributeKind::kWord) facts.words = text.substr(1, text.find('}') - 1);
  return facts;
}

OperatorFacts facts_of(const OperatorRow& row) {
  OperatorFacts facts{.name = row.name};
  each_word(row.tensors, [&](std::string_view tensor) {
    facts.takes_many = tensor.ends_with('*');
    if (facts.takes_many) tensor.remove_suffix(1);
    facts.tensors.push_back(tensor);
  });
  each_word(row.attributes,
            [&](std::string_view text) { facts.attributes.push_back(attribute_of(text)); });
  return facts;
}

const std::map<std::string_view, OperatorFacts>& operators_by_name() {
  static const std::map<std::string_view, OperatorFacts> kFacts = [] {
    std::map<std::string_view, OperatorFacts> facts;
    for (const OperatorRow& row : kOperatorRows) facts.emplace(row.name, facts_of(row));
    for (const OperatorAlias& alias : kOperatorAliases)
      facts.emplace(alias.name, facts.at(alias.own));
    return facts;
  }();
  return kFacts;
}

}  // namespace

const OperatorFacts* find_operator(std::string_view op) {
  const auto& facts = operators_by_name();
  auto found = facts.find(op);
  if (found == facts.end()) found = facts.find(classic_name(op));
  return found == facts.end() ? nullptr : &found->second;
}

bool is_known(std::string_view op) {
  return op == "null" || find_operator(op) != nullptr || find_numpy_operator(op) != nullptr ||
         std::ranges::find(kMxnetLists, op, &ListedOperator::name) != std::end(kMxnetLists);
}

std::string nearest_operators(std::string_view op) {
  std::vector<std::string_view> names;
  for (const auto& [name, facts] : operators_by_name()) names.push_back(name);
  for (const NumpyOperator& row : numpy_operators()) names.push_back(row.name);
  return did_you_mean(op, names);
}

}  // namespace mezzo::convert::mxnet
