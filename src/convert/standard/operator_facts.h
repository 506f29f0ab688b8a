// Facts about ONNX's operators, by name: what casting classes follow from, and what pins look for.
// One row an operator, in operator_facts.cpp; nowhere else stands a list of names for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "convert/onnx/element.h"
#include "mezzo/cast_class.h"

namespace mezzo::convert {

/// The way in which an operator treats numbers.
enum class Kind : std::uint8_t {
  kOther,
  kMoves,        ///< hands on values, chosen, negated or bounded: exact in any type
  kElementwise,  ///< computes element by element
  kSums,         ///< sums over neighbours or along dimensions: reductions, pooling, resizing
  kProduct,      ///< sums of products of two factors
};

struct OperatorFacts {
  std::string_view op;
  /// The row of the operator table with class and reason; empty: `own`.
  std::string_view aten = {};
  CastClass own = CastClass::kNeutral;
  std::string_view own_reason = {};
  Kind kind = Kind::kOther;
  std::uint8_t deciding = 0;  ///< one bit an input: what it holds is compared, or is a place
  std::uint8_t places = 0;    ///< those of them that say where something is

  bool decides_by(std::size_t input) const { return input < 8 && ((deciding >> input) & 1U) != 0; }
  bool places_by(std::size_t input) const { return input < 8 && ((places >> input) & 1U) != 0; }
};

/// All rows, sorted by name. Operators without one are neutral and of kind kOther.
std::span<const OperatorFacts> operator_facts();

/// The row of an operator by "Conv" or "com.microsoft::Gelu"; null: there is none.
const OperatorFacts* find_facts(std::string_view op);

Kind kind_of(std::string_view op);
inline bool moves_values(std::string_view op) {
  return kind_of(op) == Kind::kMoves;
}
inline bool is_product(std::string_view op) {
  return kind_of(op) == Kind::kProduct;
}

/// Does it add up what it reads? A softmax sums, and gives shares of the sum.
bool adds_up(std::string_view op);

/// Does it hand on the values of every operand, and not of the first alone?
bool hands_on_all(std::string_view op);

/// May it stand between a product and what is decided by it: does it move, compute element by
/// element, or sum?
bool is_between(std::string_view op);

/// The default class of an operator for that low type.
CastClass default_class(std::string_view op, Element low);

/// Why it is that class in that low type: one clause.
std::string default_reason(std::string_view op, Element low);

}  // namespace mezzo::convert
