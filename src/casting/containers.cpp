#include "mezzo/containers.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/ops/to.h>

#include "casting/gradient_sums.h"
#include "casting/scope.h"
#include "core/scalar_type.h"

namespace mezzo::amp {

at::Tensor TensorCast::operator()(const at::Tensor& tensor) const {
  if (!is_active() || !tensor.defined()) return tensor;
  const at::ScalarType type = tensor.scalar_type();
  const bool touched = is_float_or_low(type) || (doubles && type == at::kDouble);
  at::Tensor cast = touched && type != to ? tensor.to(to) : tensor;
  // A result that leaves a scope.
  if (to == at::kFloat && casting::current_frame() != nullptr)
    casting::add_up_in_float_behind(cast);
  return cast;
}

}  // namespace mezzo::amp

namespace mezzo::amp::detail {

c10::IValue cast_ivalue(const c10::IValue& value, const TensorCast& cast, Kept& kept) {
  if (value.isTensor()) return kept.cast(value.toTensor(), cast);
  if (value.isTuple()) {
    const auto tuple = value.toTuple();
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : tuple->elements())
      elements.push_back(cast_ivalue(element, cast, kept));
    const auto type = tuple->type<c10::TupleType>();
    if (type->schema()) return c10::ivalue::Tuple::createNamed(std::move(elements), type);
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    const c10::impl::GenericList list = value.toList();
    c10::impl::GenericList result(list.elementType());
    result.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      result.push_back(cast_ivalue(list.get(i), cast, kept));
    return result;
  }
  if (value.isGenericDict()) {
    const c10::impl::GenericDict dict = value.toGenericDict();
    c10::impl::GenericDict result(dict.keyType(), dict.valueType());
    for (const auto& item : dict) result.insert(item.key(), cast_ivalue(item.value(), cast, kept));
    return result;
  }
  return value;
}

}  // namespace mezzo::amp::detail
