#include "convert/standard/low_forms.h"

#include <algorithm>

#include "convert/onnx/concat.h"
#include "convert/standard/schema.h"

namespace mezzo::convert {

bool has_cast_to(Element low, std::int64_t opset) {
  const Schema* cast = find_schema("", "Cast", opset);
  return cast != nullptr && cast->variable_of(cast->outputs[0]).types().contains(tensor_of(low));
}

int later_low_form(std::string_view domain, std::string_view op, std::int64_t opset, Element low) {
  const Schema* now = find_schema(domain, op, opset);
  for (std::int64_t later = opset + 1; later <= newest_opset(); ++later) {
    const Schema* schema = find_schema(domain, op, later);
    if (schema == nullptr || schema == now) continue;
    const bool allows = std::ranges::any_of(schema->variables, [&](const Variable& variable) {
      return variable.types().contains(tensor_of(low)) && !variable.is_fixed;
    });
    if (allows) return static_cast<int>(later);
  }
  return 0;
}

std::string without_low_form(std::string_view domain, std::string_view op, std::int64_t opset,
                             Element low) {
  std::string text = concat({op, " takes no ", name_of(low), " in opset ", std::to_string(opset)});
  const int later = later_low_form(domain, op, opset, low);
  return later == 0 ? text : concat({text, ", but in opset ", std::to_string(later)});
}

std::string without_cast_to(Element low, std::int64_t opset, std::string_view otherwise) {
  if (opset == 0) {
    return concat(
        {"the model imports no opset of ONNX's own operators (training operators have a "
         "domain of their own), so no Cast may stand in it; ",
         otherwise});
  }
  int first = static_cast<int>(opset);
  while (first <= newest_opset() && !has_cast_to(low, first)) ++first;
  const std::string number = std::to_string(first);
  return concat({"the model's opset ", std::to_string(opset), " has no Cast to ", name_of(low),
                 ", the first that has is ", number, "; raise the model (opset '", number,
                 "' or 'auto'), or ", otherwise});
}

}  // namespace mezzo::convert
