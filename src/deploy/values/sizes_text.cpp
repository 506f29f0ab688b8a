#include "deploy/values/sizes_text.h"

#include <sstream>

#include "core/scalar_type.h"
#include "deploy/values/collect_tensors.h"

namespace mezzo::deploy {

std::string text_of_sizes(at::ScalarType type, c10::IntArrayRef sizes) {
  const DTypeRow* const row = row_of(type);
  std::ostringstream text;
  text << (row == nullptr ? std::string_view(c10::toString(type)) : row->name) << ' ' << sizes;
  return text.str();
}

std::string text_of_sizes(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) collect_tensors(value, &tensors);
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    text += (i == 0 ? "input_" : ", input_") + std::to_string(i) + ' ' +
            text_of_sizes(tensors[i].scalar_type(), tensors[i].sizes());
  }
  return text;
}

}  // namespace mezzo::deploy
