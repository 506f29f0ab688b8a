// In which opsets operators take the low types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convert/onnx/element.h"

namespace mezzo::convert {

/// Does that opset of the default domain (0: the model imports none) have a Cast to the low type?
bool has_cast_to(Element low, std::int64_t opset);

/// The first later opset in which the operator takes the low type; 0: none.
int later_low_form(std::string_view domain, std::string_view op, std::int64_t opset, Element low);

/// A text: the operator takes no low type in that opset, and a later opset gives it one.
std::string without_low_form(std::string_view domain, std::string_view op, std::int64_t opset,
                             Element low);

/// A text: a model of that opset has no Cast to the low type, and what can be done about it:
/// `otherwise` is the part that needs no other opset.
std::string without_cast_to(Element low, std::int64_t opset, std::string_view otherwise);

}  // namespace mezzo::convert
