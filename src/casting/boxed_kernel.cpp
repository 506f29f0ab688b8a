#include "casting/boxed_kernel.h"

#include <span>
#include <vector>

#include "casting/cast.h"
#include "casting/held_scalars.h"
#include "casting/inner_float.h"
#include "casting/layer.h"
#include "casting/leads.h"
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

// Numbers that an operator may give the type of its tensors.
bool is_number(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

ScalarGuard scalars_of(const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  ScalarGuard guard;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      guard.look(value.toTensor());
    } else if (is_number(schema.arguments()[i]) && value.isScalar()) {
      guard.look(value.toScalar());
    }
  }
  return guard;
}

// The type of an operator's output: a tensor, or a list of tensors of one type.
std::optional<at::ScalarType> floating_type(const c10::IValue& value) {
  std::optional<at::ScalarType> type;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !at::isFloatingType(tensor.scalar_type())) return true;
    const bool agrees = !type || *type == tensor.scalar_type();
    type = tensor.scalar_type();
    return agrees;
  };
  if (value.isTensor()) {
    look(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (!look(tensor)) return std::nullopt;
    }
  }
  return type;
}

// No argument says that a call adds up but few values.
Inside inside_of(const Row& row, Operands& seen, const c10::FunctionSchema& schema,
                 const c10::IValue* arguments) {
  const Traits& op = row.traits();
  if (!op.may_need_float()) return Inside::kOwnTypes;
  if (seen.mixed() && !op.one_type) {
    FloatWidth width;
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      if (arguments[i].isTensor()) width.look(arguments[i].toTensor());
    }
    seen.float32 = width.widens();
  }
  if (op.steep.meets(seen.low)) {
    const std::optional<std::size_t> dtype = dtype_argument(schema);
    if (!dtype || arguments[*dtype].isNone()) return Inside::kFloat;
    return inside_for(arguments[*dtype].toScalarType());
  }
  return op.sums ? Inside::kFloat : Inside::kOwnTypes;
}

Operands operands_of(const Row& row, Treatment kind, at::ScalarType low,
                     const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  Operands seen;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    look(seen, arguments[i]);
    if (!is_written(schema.arguments()[i])) continue;
    if (const std::optional<at::ScalarType> type = floating_type(arguments[i])) seen.written = type;
  }
  if (row.guards_scalars()) seen.unheld = scalars_of(schema, arguments).unheld(seen, kind, low);
  seen.inside = inside_of(row, seen, schema, arguments);
  return seen;
}

Leads leads_of(const Row& row, const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  LeadFinder finder;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (arguments[i].isTensor()) {
      finder.look(arguments[i].toTensor(), row.is_weight(i));
    } else if (arguments[i].isTensorList()) {
      for (const at::Tensor& tensor : arguments[i].toTensorList())
        finder.look(tensor, row.is_weight(i));
    }
  }
  return finder.leads();
}

// Does the call write its running statistics? Norms say so by a flag.
bool updates_statistics(const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (name == "training" || name == "train" || name == "use_input_stats")
      return arguments[i].toBool();
  }
  return true;
}

// A tensor that the operator writes, and the copy that it is given in its place.
struct Substitute {
  at::Tensor written;
  at::Tensor computed;
};

std::vector<Substitute> cast_all(const Row& row, const Decision& decision,
                                 const c10::FunctionSchema& schema, c10::IValue* arguments,
                                 Casting& casting) {
  std::vector<Substitute> substitutes;
  const bool input_alone =
      row.casts_input_only() && decision.plan == Plan::kCast && decision.target != at::kFloat;
  const std::size_t end = input_alone ? 1 : schema.arguments().size();
  const bool updates = updates_statistics(schema, arguments);
  for (std::size_t i = 0; i < end; ++i) {
    const bool is_updated = updates && row.is_statistic(i) && arguments[i].isTensor();
    const bool written = is_updated || is_written(schema.arguments()[i]);
    // LibTorch's own lists in place take mixed types.
    if (written && !arguments[i].isTensor()) continue;
    const at::Tensor before = written ? arguments[i].toTensor() : at::Tensor();
    cast(arguments[i], casting);
    if (written && !before.is_same(arguments[i].toTensor()))
      substitutes.push_back({before, arguments[i].toTensor()});
  }
  return substitutes;
}

// Written tensors get their values, and are returned in place of the copies.
void take_back(const std::vector<Substitute>& substitutes, const Decision& decision,
               std::string_view op, std::span<c10::IValue> results) {
  for (const Substitute& each : substitutes) {
    if (decision.plan == Plan::kNearest) {
      write_nearest(op, each.written, each.computed);
    } else {
      write_back(each.written, each.computed);
    }
    for (c10::IValue& result : results) {
      if (result.isTensor() && result.toTensor().is_same(each.computed)) result = each.written;
    }
  }
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
  const Operands seen = operands_of(row_, kind, frame->rules.low, schema, arguments);
  const Leads leads =
      needs_leads(row_.traits(), seen, frame->rules) ? leads_of(row_, schema, arguments) : Leads{};
  const Decision decision =
      decide(kind, row_.traits(), dtype.has_value(), seen, frame->rules, leads);
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
  const bool names_its_type = dtype.has_value() && !arguments[*dtype].isNone();
  const std::vector<Substitute> substitutes = cast_all(row_, decision, schema, arguments, casting);
  op.callBoxed(stack);
  const std::size_t first_result = stack->size() - schema.returns().size();
  if (!substitutes.empty()) {
    take_back(substitutes, decision, row_.name(),
              std::span(stack->data() + first_result, schema.returns().size()));
  }
  const bool rounds =
      decision.plan == Plan::kEmulate || (decision.plan == Plan::kInFloat && !names_its_type);
  if (!rounds) return;
  for (std::size_t i = first_result; i < stack->size(); ++i) round((*stack)[i], decision.target);
}

}  // namespace mezzo::casting
