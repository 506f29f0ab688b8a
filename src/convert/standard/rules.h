// How ONNX's operators map to cast classes, and what else the converter knows about them by name.
#pragma once

#include <span>
#include <string_view>

#include "convert/onnx/element.h"
#include "mezzo/cast_class.h"

namespace mezzo::convert {

struct Rule {
  std::string_view op;
  std::string_view aten;  // the row of the operator table that decides; empty: `own` does
  CastClass own;
  bool moves = false;  // only moves or compares values: exact in any type
  std::string_view why;
};

/// All rules, sorted by name. Operators without one are neutral.
std::span<const Rule> rules();
const Rule* find_rule(std::string_view op);

/// The default class of an operator for that low type.
CastClass default_class(std::string_view op, Element low);

/// Why it is that class: one clause.
std::string_view default_reason(std::string_view op, Element low);

}  // namespace mezzo::convert
