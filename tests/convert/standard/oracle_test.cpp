// The schema table against the registry of Debian's libonnx, an independent copy of the standard's
// facts up to opset 17.
#include <gmock/gmock.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "convert/standard/schema.h"

namespace mezzo::convert {
namespace {

constexpr int kNewest = 17;

struct Masks {
  std::uint64_t tensor = 0, sequence = 0, optional = 0, optional_sequence = 0;
  bool others = false;
  bool operator==(const Masks&) const = default;
};

// The inside of "outer(inside)", or nothing.
std::optional<std::string> inside(const std::string& text, const std::string& outer) {
  if (!text.starts_with(outer + "(") || !text.ends_with(")")) return std::nullopt;
  return text.substr(outer.size() + 1, text.size() - outer.size() - 2);
}

void add(Masks& masks, const std::string& type) {
  std::string rest = type;
  const bool is_optional = inside(rest, "optional").has_value();
  if (is_optional) rest = *inside(rest, "optional");
  const bool is_sequence = inside(rest, "seq").has_value();
  if (is_sequence) rest = *inside(rest, "seq");
  const auto element = inside(rest, "tensor");
  if (!element) {
    masks.others = true;
    return;
  }
  std::uint64_t& mask = is_optional && is_sequence ? masks.optional_sequence
                        : is_optional              ? masks.optional
                        : is_sequence              ? masks.sequence
                                                   : masks.tensor;
  const auto known = parse_element(*element);
  ASSERT_TRUE(known) << type;
  mask |= std::uint64_t{1} << static_cast<unsigned>(*known);
}

Masks masks_of(const onnx::OpSchema::FormalParameter& formal) {
  Masks masks;
  for (const auto& type : formal.GetTypes()) add(masks, *type);
  return masks;
}

Masks masks_of(const TypeSet& set) {
  return {set.tensor, set.sequence, set.optional, set.optional_sequence, set.others};
}

std::string label(const onnx::OpSchema& schema) {
  return schema.domain() + "::" + schema.Name() + "-" + std::to_string(schema.SinceVersion());
}

// The standard's documentation corrected the types of these after libonnx 1.12.
bool is_corrected(const onnx::OpSchema& schema) {
  return label(schema) == "::Erf-13" || label(schema) == "::GridSample-16";
}

std::size_t compare_formals(const onnx::OpSchema& theirs, const Schema& ours, bool inputs) {
  const auto& list = inputs ? theirs.inputs() : theirs.outputs();
  const auto formals = inputs ? ours.inputs : ours.outputs;
  EXPECT_EQ(formals.size(), list.size()) << label(theirs);
  for (std::size_t i = 0; i < std::min(formals.size(), list.size()); ++i) {
    EXPECT_EQ(formals[i].name, list[i].GetName()) << label(theirs);
    const bool same = masks_of(ours.variable_of(formals[i]).types()) == masks_of(list[i]);
    if (!same && is_corrected(theirs)) continue;
    EXPECT_TRUE(same) << label(theirs) << ' ' << list[i].GetName();
    const bool is_variadic = list[i].GetOption() == onnx::OpSchema::Variadic;
    EXPECT_EQ(formals[i].arity >= Arity::kVariadic, is_variadic) << label(theirs);
    EXPECT_EQ(formals[i].arity == Arity::kOptional, list[i].GetOption() == onnx::OpSchema::Optional)
        << label(theirs);
  }
  return list.size();
}

TEST(SchemaTable, AgreesWithTheRegistryOfLibonnx) {
  std::size_t schemas = 0, formals = 0, attributes = 0;
  std::set<std::string> theirs_by_label;
  for (const onnx::OpSchema& theirs : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    const bool is_standard = theirs.domain().empty() || theirs.domain() == "ai.onnx.ml";
    if (!is_standard || (theirs.domain().empty() && theirs.SinceVersion() > kNewest)) continue;
    theirs_by_label.insert(label(theirs));
    const Schema* ours = find_schema(theirs.domain(), theirs.Name(), theirs.SinceVersion());
    ASSERT_NE(ours, nullptr) << label(theirs);
    EXPECT_EQ(ours->since, theirs.SinceVersion()) << label(theirs);
    EXPECT_EQ(ours->is_deprecated, theirs.Deprecated()) << label(theirs);
    ++schemas;
    if (theirs.Deprecated()) continue;
    EXPECT_EQ(ours->min_inputs, theirs.min_input()) << label(theirs);
    EXPECT_EQ(ours->min_outputs, theirs.min_output()) << label(theirs);
    formals += compare_formals(theirs, *ours, true) + compare_formals(theirs, *ours, false);
    for (const auto& [name, attribute] : theirs.attributes()) {
      const AttributeFact* fact = ours->attribute(name);
      ASSERT_NE(fact, nullptr) << label(theirs) << ' ' << name;
      EXPECT_EQ(fact->is_required, attribute.required) << label(theirs) << ' ' << name;
      EXPECT_EQ(static_cast<int>(fact->type), static_cast<int>(attribute.type)) << label(theirs);
      ++attributes;
    }
    EXPECT_EQ(ours->attributes.size(), theirs.attributes().size()) << label(theirs);
  }
  for (const Schema& ours : all_schemas()) {
    if (!ours.domain.empty() || ours.since > kNewest) continue;
    EXPECT_TRUE(
        theirs_by_label.contains("::" + std::string(ours.name) + "-" + std::to_string(ours.since)))
        << ours.name << ' ' << ours.since << " is unknown to libonnx";
  }
  std::printf("%zu schemas with %zu formals and %zu attributes agree\n", schemas, formals,
              attributes);
  EXPECT_GT(schemas, 400U);
}

}  // namespace
}  // namespace mezzo::convert
