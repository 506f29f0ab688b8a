#include "deploy/values/collect_tensors.h"

namespace mezzo::deploy {

void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors->push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements())
      collect_tensors(element, tensors);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) collect_tensors(element, tensors);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) collect_tensors(item.value(), tensors);
  }
}

}  // namespace mezzo::deploy
