// The operators of the ONNX standard: formals, type variables, attributes, per opset.
//
// Facts of opsets 1 to 28 in one table, schema_table.inc, made by tools/make_onnx_schemas.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "convert/onnx/element.h"

namespace mezzo::convert {

/// A set of types: one bit per element type for each form.
struct TypeSet {
  std::uint64_t tensor, sequence, optional, optional_sequence;
  bool others;  // maps and sequences of maps

  bool contains(const Type&) const;
};

/// A type variable of an operator; `is_fixed`: not a variable but one type, as "tensor(int64)".
struct Variable {
  const char* name;
  const TypeSet* set;
  bool is_fixed;

  const TypeSet& types() const { return *set; }
};

enum class Arity : std::uint8_t { kOne, kOptional, kVariadic, kVariadicOfAnyTypes };

struct Formal {
  const char* name;
  std::uint8_t variable;  // index into the schema's variables
  Arity arity;
};

struct AttributeFact {
  const char* name;
  std::uint8_t type;  // AttributeProto.AttributeType
  bool is_required;
  const char* default_text;  // null: none
};

/// An operator as it stands from opset `since` on.
struct Schema {
  std::string_view domain, name;
  int since = 0;
  bool is_deprecated = false;
  bool is_custom = false;  // described in a file, attributes left out
  std::span<const Formal> inputs, outputs;
  std::span<const Variable> variables;
  std::span<const AttributeFact> attributes;
  int min_inputs = 0, max_inputs = 0, min_outputs = 0, max_outputs = 0;

  /// The formal of the i-th input or output, with variadic ones repeated; null beyond the last.
  const Formal* input(std::size_t i) const;
  const Formal* output(std::size_t i) const;
  const Variable& variable_of(const Formal& formal) const { return variables[formal.variable]; }
  const AttributeFact* attribute(std::string_view name) const;
};

/// The schema in force at that opset, or null: an operator that the standard does not know there.
/// "ai.onnx" and "" are the same domain. Schemas live as long as the program.
const Schema* find_schema(std::string_view domain, std::string_view op, std::int64_t opset);

/// All schemas, sorted by domain, name and opset.
std::span<const Schema> all_schemas();

/// Is there any operator of that name, in any opset of the standard's domains?
bool is_known_operator(std::string_view op);

/// The newest opset of the default domain that the table knows.
int newest_opset();

}  // namespace mezzo::convert
