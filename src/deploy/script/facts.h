// Facts about the types of the values in a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "core/torch.h"

namespace mezzo::deploy::script {

/// The type of a tensor's elements as far as casts care.
enum class Kind : std::uint8_t {
  kNothing,  ///< no tensor arrives: None, or code that ends before
  kFloat,    ///< float32
  kLow,      ///< the type that is converted to
  kReal,     ///< one of these two, which is known at run time
  kWhole,    ///< integers and booleans
  kOther,    ///< float64, complex, the other low type
  kUnknown,
};

constexpr bool is_castable(Kind kind) {
  return kind == Kind::kFloat || kind == Kind::kLow || kind == Kind::kReal;
}

/// The known type of a value: a tensor, or the tensors in an optional, list or dictionary together.
struct Fact {
  Kind kind = Kind::kNothing;
  bool sized = false;            ///< the tensor has a dimension for certain
  bool touched = false;          ///< a cast to the low type may have made it what it is
  std::vector<Fact> parts = {};  ///< of a tuple

  bool operator==(const Fact&) const = default;
};

/// The fact of a tensor of a type.
Fact fact_of(at::ScalarType type, bool sized, at::ScalarType low);

/// The fact of a constant, an attribute or an example.
Fact fact_of(const c10::IValue& value, at::ScalarType low);

/// Either of both.
Fact either(const Fact& a, const Fact& b);

/// The type that LibTorch's promotion gives.
Fact promoted(const Fact& a, const Fact& b);

}  // namespace mezzo::deploy::script
