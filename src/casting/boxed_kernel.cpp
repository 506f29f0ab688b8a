#include "casting/boxed_kernel.h"

#include "casting/cast.h"
#include "casting/layer.h"
#include "casting/operands.h"
#include "casting/shield.h"

namespace mezzo::casting {
namespace {

void look(Operands& seen, const c10::IValue& value) {
  if (value.isTensor()) {
    see(seen, value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) see(seen, tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& element : value.toOptionalTensorList()) {
      const std::optional<at::Tensor> tensor = element;
      if (tensor) see(seen, *tensor);
    }
  }
}

void cast(c10::IValue& value, Casting& casting) {
  if (value.isTensor()) {
    if (casting.needs(value.toTensor())) value = casting.apply(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const at::Tensor& tensor = list.get(i);
      if (casting.needs(tensor)) list.set(i, casting.apply(tensor));
    }
    value = std::move(list);
  }
}

template <typename T>
T rounded(T result, at::ScalarType low) {
  round_in_place(result, low);
  return result;
}

void round(c10::IValue& value, at::ScalarType low) {
  if (value.isTensor()) {
    value = rounded(value.toTensor(), low);
  } else if (value.isTensorList()) {
    value = rounded(value.toTensorVector(), low);
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_type(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

std::string text(const c10::IValue& value, const c10::Argument& argument) {
  if (value.isNone()) return "none";
  if (value.isInt() && is_type(argument)) return text_of(value.toScalarType());
  if (value.isSymInt()) return text_of(value.toSymInt());
  if (value.isBool()) return text_of(value.toBool());
  if (value.isInt()) return text_of(value.toInt());
  if (value.isDouble()) return text_of(value.toDouble());
  if (value.isString()) return value.toStringRef();
  return {};
}

std::optional<std::size_t> dtype_argument(const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.name() == "dtype" && argument.type()->kind() == c10::TypeKind::OptionalType)
      return i;
  }
  return std::nullopt;
}

Operands operands_of(const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  Operands seen;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    look(seen, arguments[i]);
    if (!is_written(schema.arguments()[i]) || !arguments[i].isTensor()) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    if (tensor.defined() && at::isFloatingType(tensor.scalar_type()))
      seen.written = tensor.scalar_type();
  }
  return seen;
}

}  // namespace

void BoxedKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  const auto pass = [&] {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, layer_key()),
                       stack);
  };
  const Frame* frame = active_frame();
  if (frame == nullptr) return pass();
  const c10::FunctionSchema& schema = op.schema();
  c10::IValue* arguments = stack->data() + (stack->size() - schema.arguments().size());
  const Treatment kind = row_.resolve(
      *frame, [&](std::size_t index) { return text(arguments[index], schema.arguments()[index]); });
  const std::optional<std::size_t> dtype = dtype_argument(schema);
  const Decision decision = decide(kind, row_.is_matrix_operator(frame->rules.low),
                                   dtype.has_value(), operands_of(schema, arguments), frame->rules);
  if (decision.plan == Plan::kPass) return pass();
  if (decision.plan == Plan::kBan) row_.refuse(*frame);
  const Shield shield;
  if (decision.plan == Plan::kShield) return op.callBoxed(stack);
  if (decision.plan == Plan::kFloatResult) {
    if (arguments[*dtype].isNone()) arguments[*dtype] = at::kFloat;
    op.callBoxed(stack);
    return;
  }
  Casting casting(*frame, decision, row_);
  const std::size_t end = row_.casts_input_only() ? 1 : schema.arguments().size();
  for (std::size_t i = 0; i < end; ++i) {
    if (!is_written(schema.arguments()[i])) cast(arguments[i], casting);
  }
  op.callBoxed(stack);
  if (decision.plan != Plan::kEmulate) return;
  for (std::size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    round((*stack)[i], decision.target);
  }
}

}  // namespace mezzo::casting
