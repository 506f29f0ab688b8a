#include "deploy/script/verdict.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "casting/row.h"
#include "deploy/script/inlined.h"
#include "operators/condition.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Node;
using torch::jit::Value;

/// Arguments that are integers, booleans or positions.
constexpr std::array<std::string_view, 9> kPositions{
    "batch_sizes", "condition", "index",   "indices",       "input_lengths",
    "lengths",     "mask",      "offsets", "target_lengths"};

/// Can the argument be a floating tensor, or several?
bool takes_tensors(const c10::Argument& argument) {
  if (std::ranges::find(kPositions, argument.name()) != kPositions.end()) return false;
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (const auto list = type->cast<c10::ListType>()) type = list->getElementType();
  return type->kind() == c10::TypeKind::TensorType;
}

std::vector<std::size_t> operands_of(const c10::FunctionSchema& schema, bool input_only) {
  std::vector<std::size_t> operands;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (takes_tensors(schema.arguments()[i])) operands.push_back(i);
    if (input_only && !operands.empty()) break;
  }
  return operands;
}

/// Is a result the memory of an argument?
bool gives_aliases(const c10::FunctionSchema& schema) {
  return schema.is_mutable() || std::ranges::any_of(schema.returns(), [](const c10::Argument& one) {
           return one.alias_info() != nullptr;
         });
}

bool gives_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& one) {
    c10::TypePtr type = one.type();
    if (const auto list = type->cast<c10::ListType>()) type = list->getElementType();
    return type->kind() == c10::TypeKind::TensorType;
  });
}

/// The place of an empty `dtype` argument.
std::optional<std::size_t> empty_dtype_argument(const Node& node,
                                                const c10::FunctionSchema& schema) {
  const auto index = schema.argumentIndexWithName("dtype");
  if (!index) return std::nullopt;
  const auto value = torch::jit::toIValue(node.input(static_cast<std::size_t>(*index)));
  if (!value || !value->isNone()) return std::nullopt;
  return static_cast<std::size_t>(*index);
}

/// As Policy::with_conditional() writes the values of arguments.
std::string text_of_argument(const c10::IValue& value, const c10::Argument& argument) {
  if (value.isNone()) return "none";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isString()) return value.toStringRef();
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (value.isInt() && type->kind() == c10::TypeKind::ScalarTypeType) {
    const DTypeRow* const row = row_of(static_cast<at::ScalarType>(value.toInt()));
    return row == nullptr ? std::to_string(value.toInt()) : std::string(row->name);
  }
  if (value.isInt()) return std::to_string(value.toInt());
  return value.isDouble() ? casting::text_of(value.toDouble()) : std::string();
}

/// LibTorch's promotion does it, so that nothing has to be cast.
bool promotes_itself(const Operator* row) {
  return row != nullptr && row->native_promotion && !row->one_type;
}

std::size_t length_of(const Value* list) {
  if (const auto known = torch::jit::toIValue(list)) return known->toListRef().size();
  return list->node()->kind() == c10::prim::ListConstruct ? list->node()->inputs().size() : 0;
}

/// The name under which an operator is on the lists. Traces have aten::_convolution for all that
/// networks call by the number of dimensions, and aten::_convolution_mode where a word pads.
std::string listed_name(const Node& node, const std::string& name) {
  const bool by_word = node.kind() == c10::aten::_convolution_mode;
  if (node.kind() != c10::aten::_convolution && !by_word) return name;
  const std::size_t dimensions = length_of(node.namedInput("stride"));
  if (dimensions < 1 || dimensions > 3) return name;
  const std::string number = std::to_string(dimensions);
  if (by_word) return "aten::conv" + number + "d.padding";
  const auto transposed = torch::jit::toIValue(node.namedInput("transposed"));
  if (!transposed || !transposed->isBool()) return name;
  if (!transposed->toBool()) return "aten::conv" + number + "d";
  return "aten::conv_transpose" + number + (dimensions == 1 ? "d" : "d.input");
}

}  // namespace

bool is_held(double value, DType low) {
  const double size = std::abs(value);
  if (size == 0 || !std::isfinite(size)) return true;
  return size >= row_of(low).smallest_normal && size <= row_of(low).largest;
}

std::string Judge::excluded_by(const Node& node) const {
  if (std::string pattern = excluded_.pattern_for(module_of(node)); !pattern.empty())
    return pattern;
  for (const Value* input : node.inputs()) {
    while (input->node()->kind() == c10::aten::t || input->node()->kind() == c10::aten::transpose)
      input = input->node()->input(0);
    const auto place = attribute_of(input, module_);
    if (!place) continue;
    if (std::string pattern = excluded_.pattern_for(place->path); !pattern.empty()) return pattern;
  }
  return {};
}

bool Judge::holds_condition(const Node& node, std::size_t row) const {
  const ConditionalRule* const rule = classes_.condition_of(row);
  if (rule == nullptr) return false;
  const c10::FunctionSchema& schema = node.schema();
  const auto index = schema.argumentIndexWithName(rule->argument);
  if (!index) return false;
  const auto value = torch::jit::toIValue(node.input(static_cast<std::size_t>(*index)));
  // A value that is known at run time alone may be one of those.
  if (!value) return true;
  const std::string text =
      text_of_argument(*value, schema.arguments()[static_cast<std::size_t>(*index)]);
  return is_condition_value(text, rule->values);
}

/// Does the low type hold the numbers that the operator converts to the type of its tensors?
bool Judge::holds_scalars(const Node& node) const {
  const c10::FunctionSchema& schema = node.schema();
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    c10::TypePtr type = schema.arguments()[i].type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    const bool is_number =
        type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
    const auto value = torch::jit::toIValue(node.input(i));
    if (!value) {
      if (is_number) return false;  // it may be anything
      continue;
    }
    if (is_number && value->isDouble() && !is_held(value->toDouble(), classes_.low())) return false;
    if (is_number && value->isInt() &&
        !is_held(static_cast<double>(value->toInt()), classes_.low()))
      return false;
    if (!value->isTensor() || !value->toTensor().defined()) continue;
    const at::Tensor& tensor = value->toTensor();
    if (tensor.dim() == 0 && tensor.is_floating_point() &&
        !is_held(tensor.item().toDouble(), classes_.low()))
      return false;
  }
  return true;
}

Verdict Judge::in_place(const Node& node, const Operator* row, CastClass cast_class,
                        Verdict verdict) const {
  if (row != nullptr && row->lacks_low) {
    verdict.way = Way::kThroughFloat;
    verdict.why = "LibTorch has no 16-bit kernel; what is written keeps its type";
    return verdict;
  }
  if (row != nullptr && row->guards_scalars && !holds_scalars(node)) {
    verdict.way = Way::kThroughFloat;
    verdict.clamps = true;
    verdict.why = "the low type does not hold its numbers; what is written keeps its type";
    return verdict;
  }
  const bool casts = cast_class == CastClass::kLow || cast_class == CastClass::kFloat ||
                     cast_class == CastClass::kPromote || (row != nullptr && row->one_type);
  if (!casts || promotes_itself(row)) return verdict;
  verdict.way = Way::kWritten;
  verdict.why = "writes in place: the others take the type of what is written";
  return verdict;
}

Verdict Judge::by_row(const Node& node, const Found& found, Verdict verdict) const {
  const Operator* const row = OperatorClasses::table_row(found.row);
  const CastClass cast_class = classes_.class_of(found.row);
  const c10::FunctionSchema& schema = node.schema();
  verdict.operands = operands_of(schema, row != nullptr && row->input_only);
  verdict.product = row != nullptr && row->matrix;
  verdict.why = classes_.why(found.row);
  if (found.form == Form::kOut) return verdict;
  if (found.form == Form::kInPlace) return in_place(node, row, cast_class, std::move(verdict));
  if (row != nullptr && row->lacks_low && cast_class != CastClass::kFloat) {
    verdict.way = Way::kFloat;
    verdict.why = "LibTorch has no 16-bit kernel for processors";
    return verdict;
  }
  if (row != nullptr && row->guards_scalars && !holds_scalars(node)) {
    verdict.way = Way::kFloat;
    verdict.why = "the low type does not hold its numbers";
    return verdict;
  }
  switch (cast_class) {
    case CastClass::kLow:
      verdict.way = Way::kLow;
      break;
    case CastClass::kConditional:
      if (!holds_condition(node, found.row)) {
        if (classes_.is_low_otherwise(found.row)) verdict.way = Way::kLow;
        break;
      }
      verdict.way = Way::kFloat;
      verdict.why = "conditional_fp32_ops: '" + classes_.condition_of(found.row)->argument + "'";
      break;
    case CastClass::kBanned:
    case CastClass::kFloat: {
      verdict.way = Way::kFloat;
      const auto dtype = empty_dtype_argument(node, schema);
      if (dtype && row != nullptr && row->float_by == FloatBy::kDtypeArgument && !row->lacks_low) {
        verdict.way = Way::kFloatResult;
        verdict.dtype_argument = *dtype;
      }
      break;
    }
    case CastClass::kPromote:
      if (!promotes_itself(row)) verdict.way = Way::kWidest;
      break;
    case CastClass::kNeutral:
      if (row != nullptr && row->one_type) verdict.way = Way::kWidest;
      break;
  }
  return verdict;
}

Verdict Judge::judge(const Node& node) const {
  Verdict verdict;
  switch (node.kind()) {
    case c10::prim::CallMethod:
    case c10::prim::CallFunction:
    case c10::prim::fork:
    case c10::prim::SetAttr:
      verdict.way = Way::kRestore;
      for (std::size_t i = 0; i < node.inputs().size(); ++i) verdict.operands.push_back(i);
      return verdict;
    default:
      break;
  }
  const c10::FunctionSchema* const schema = node.maybeSchema();
  if (schema == nullptr || node.kind().is_prim()) return verdict;
  const c10::OperatorName name = schema->operator_name();
  verdict.op = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  const auto found = classes_.find(listed_name(node, verdict.op));
  if (!found && !node.kind().is_aten()) {
    verdict.way = Way::kRestore;
    verdict.why = "an operator that no list names keeps its types";
    verdict.operands = operands_of(*schema, false);
    return verdict;
  }
  if (std::string pattern = excluded_by(node); !pattern.empty()) {
    verdict.why = "excluded_sym_names names '" + pattern + "'";
    verdict.product = found && OperatorClasses::table_row(found->row) != nullptr &&
                      OperatorClasses::table_row(found->row)->matrix;
    // A copy in float would cut what shares memory.
    if (gives_aliases(*schema) || !gives_tensors(*schema)) return verdict;
    verdict.way = Way::kFloat;
    verdict.operands = operands_of(*schema, false);
    return verdict;
  }
  if (!found) {
    verdict.why = "no list names it";
    return verdict;
  }
  return by_row(node, *found, std::move(verdict));
}

}  // namespace mezzo::deploy::script
