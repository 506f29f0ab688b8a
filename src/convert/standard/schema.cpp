#include "convert/standard/schema.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

namespace mezzo::convert {
namespace {

struct Row {
  std::uint8_t domain;
  const char* name;
  std::uint16_t since;
  bool is_deprecated;
  std::uint32_t first_formal;
  std::uint8_t inputs, outputs;
  std::uint32_t first_variable;
  std::uint8_t variables;
  std::uint32_t first_attribute;
  std::uint8_t attributes;
  std::uint16_t min_inputs, max_inputs, min_outputs, max_outputs;
};

#include "convert/standard/schema_table.inc"

constexpr std::array<std::string_view, 4> kDomains{"", "ai.onnx.ml", "ai.onnx.preview.training",
                                                   "ai.onnx.preview"};

Schema schema_of(const Row& row) {
  const std::span formals(kFormals + row.first_formal, std::size_t{row.inputs} + row.outputs);
  Schema schema;
  schema.domain = kDomains[row.domain];
  schema.name = row.name;
  schema.since = row.since;
  schema.is_deprecated = row.is_deprecated;
  schema.inputs = formals.first(row.inputs);
  schema.outputs = formals.subspan(row.inputs);
  schema.variables = std::span(kVariables + row.first_variable, row.variables);
  schema.attributes = std::span(kAttributes + row.first_attribute, row.attributes);
  schema.min_inputs = row.min_inputs;
  schema.max_inputs = row.max_inputs;
  schema.min_outputs = row.min_outputs;
  schema.max_outputs = row.max_outputs;
  return schema;
}

const std::vector<Schema>& schemas() {
  static const std::vector<Schema> kSchemas = [] {
    std::vector<Schema> all;
    all.reserve(std::size(kRows));
    for (const Row& row : kRows) all.push_back(schema_of(row));
    return all;
  }();
  return kSchemas;
}

const Formal* formal_at(std::span<const Formal> formals, std::size_t i) {
  if (i < formals.size()) return &formals[i];
  if (formals.empty() || formals.back().arity < Arity::kVariadic) return nullptr;
  return &formals.back();
}

}  // namespace

bool TypeSet::contains(const Type& type) const {
  const auto element = static_cast<unsigned>(type.element);
  if (type.base == Base::kMap) return others;
  if (type.base != Base::kTensor || element > 63) return false;
  const std::uint64_t mask = type.wraps[0] == Wrap::kNone       ? tensor
                             : type.wraps[0] == Wrap::kSequence ? sequence
                             : type.wraps[1] == Wrap::kNone     ? optional
                                                                : optional_sequence;
  return (mask >> element & 1) != 0;
}

const Formal* Schema::input(std::size_t i) const {
  return formal_at(inputs, i);
}

const Formal* Schema::output(std::size_t i) const {
  return formal_at(outputs, i);
}

const AttributeFact* Schema::attribute(std::string_view wanted) const {
  const auto found = std::ranges::find(
      attributes, wanted, [](const AttributeFact& fact) { return std::string_view(fact.name); });
  return found == attributes.end() ? nullptr : &*found;
}

const Schema* find_schema(std::string_view domain, std::string_view op, std::int64_t opset) {
  if (domain == "ai.onnx") domain = "";
  const auto number =
      static_cast<std::size_t>(std::ranges::find(kDomains, domain) - kDomains.begin());
  if (number == kDomains.size()) return nullptr;
  const auto key = [](const Row& row) {
    return std::tuple(std::size_t{row.domain}, std::string_view(row.name), std::int64_t{row.since});
  };
  const Row* after = std::ranges::upper_bound(kRows, std::tuple(number, op, opset), {}, key);
  if (after == std::begin(kRows)) return nullptr;
  const Row& row = *(after - 1);
  if (row.domain != number || row.name != op) return nullptr;
  return &schemas()[static_cast<std::size_t>(&row - kRows)];
}

std::span<const Schema> all_schemas() {
  return schemas();
}

bool is_known_operator(std::string_view op) {
  return std::ranges::any_of(kRows, [&](const Row& row) { return row.name == op; });
}

int newest_opset() {
  return kNewestOpset;
}

}  // namespace mezzo::convert
