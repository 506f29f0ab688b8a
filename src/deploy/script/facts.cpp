#include "deploy/script/facts.h"

#include <algorithm>

namespace mezzo::deploy::script {
namespace {

Kind either_kind(Kind a, Kind b) {
  if (a == Kind::kNothing || a == b) return b;
  if (b == Kind::kNothing) return a;
  return is_castable(a) && is_castable(b) ? Kind::kReal : Kind::kUnknown;
}

Kind promoted_kind(const Fact& a, const Fact& b) {
  if (a.kind == Kind::kNothing || a.kind == b.kind) return b.kind;
  if (b.kind == Kind::kNothing) return a.kind;
  if (a.kind == Kind::kWhole && is_castable(b.kind)) return b.kind;
  if (b.kind == Kind::kWhole && is_castable(a.kind)) return a.kind;
  if (!is_castable(a.kind) || !is_castable(b.kind)) return Kind::kUnknown;
  // A float tensor without dimensions takes the low type of the other.
  const Fact& wide = a.kind == Kind::kFloat ? a : b;
  return wide.kind == Kind::kFloat && wide.sized ? Kind::kFloat : Kind::kReal;
}

}  // namespace

Fact fact_of(at::ScalarType type, bool sized, at::ScalarType low) {
  Fact fact{.kind = Kind::kOther, .sized = sized};
  if (type == at::kFloat) {
    fact.kind = Kind::kFloat;
  } else if (type == low) {
    fact.kind = Kind::kLow;
  } else if (c10::isIntegralType(type, /*includeBool=*/true)) {
    fact.kind = Kind::kWhole;
  }
  return fact;
}

Fact fact_of(const c10::IValue& value, at::ScalarType low) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return {};
    return fact_of(tensor.scalar_type(), tensor.dim() > 0, low);
  }
  Fact fact;
  if (value.isTuple()) {
    for (const c10::IValue& part : value.toTupleRef().elements())
      fact.parts.push_back(fact_of(part, low));
  } else if (value.isList()) {
    bool is_first = true;
    for (const c10::IValue& part : value.toListRef()) {
      const Fact one = fact_of(part, low);
      fact = is_first ? one : either(fact, one);
      is_first = false;
    }
  } else if (value.isGenericDict()) {
    bool is_first = true;
    for (const auto& part : value.toGenericDict()) {
      const Fact one = fact_of(part.value(), low);
      fact = is_first ? one : either(fact, one);
      is_first = false;
    }
  }
  return fact;
}

Fact either(const Fact& a, const Fact& b) {
  const bool a_is_nothing = a.kind == Kind::kNothing && a.parts.empty();
  const bool b_is_nothing = b.kind == Kind::kNothing && b.parts.empty();
  Fact fact;
  fact.touched = a.touched || b.touched;
  if (a.parts.size() == b.parts.size()) {
    for (std::size_t i = 0; i < a.parts.size(); ++i)
      fact.parts.push_back(either(a.parts[i], b.parts[i]));
  } else if (a_is_nothing || b_is_nothing) {
    fact.parts = a_is_nothing ? b.parts : a.parts;
  }
  fact.kind = either_kind(a.kind, b.kind);
  fact.sized = (a_is_nothing || a.sized) && (b_is_nothing || b.sized);
  return fact;
}

Fact promoted(const Fact& a, const Fact& b) {
  return {
      .kind = promoted_kind(a, b), .sized = a.sized || b.sized, .touched = a.touched || b.touched};
}

}  // namespace mezzo::deploy::script
