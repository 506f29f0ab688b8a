// Operators that the standard has for some types alone, among operands of other types.
#pragma once

#include <string>
#include <unordered_map>

#include "convert/make/made_model.h"

namespace mezzo::convert {

/// The types of a model's values by their names, which are unique in it.
using TypesOfValues = std::unordered_map<std::string, Element>;

/// Casts an operand to the nearest type that its operator admits at the model's opset, and what
/// the operator makes of it back: `ReduceMax` of booleans becomes `Cast`, `ReduceMax`, `Cast`. The
/// nearest type holds every value of the operand's where one of those is admitted; else it is the
/// widest. Values keep their names and types. Left alone: operands whose type is not known, and
/// operators that admit nothing wider. Returns how many operators were changed.
std::size_t admit_types(MadeModel& model, const TypesOfValues& types);

}  // namespace mezzo::convert
