#include "casting/row.h"

#include <algorithm>
#include <charconv>

#include "core/scalar_type.h"
#include "operators/condition.h"
#include "operators/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace mezzo::casting {
namespace {

// The names of the overload's arguments, in their order.
std::vector<std::string> arguments_of(std::string_view overload) {
  const std::size_t dot = overload.find('.');
  std::string name(overload.substr(0, dot));
  if (name.find("::") == std::string::npos) name.insert(0, "aten::");
  const std::string suffix(dot == std::string_view::npos ? "" : overload.substr(dot + 1));
  const auto op = c10::Dispatcher::singleton().findSchema({name, suffix});
  std::vector<std::string> names;
  if (!op) return names;
  for (const c10::Argument& argument : op->schema().arguments()) names.push_back(argument.name());
  return names;
}

LowTypes steep_types_of(const Operator& op) {
  LowTypes types;
  for (const DType low : kLowTypes) {
    if (op.is_steep_for(low)) types = types | LowTypes::of(low);
  }
  return types;
}

// As LibTorch's schemas call them: of layers, recurrent ones, and cells.
bool names_a_weight(std::string_view argument) {
  return argument == "weight" || argument == "params" || argument == "w_ih" ||
         argument.ends_with("_weight");
}

}  // namespace

Row::Row(std::size_t index, std::string overload)
    : index_(index), overload_(std::move(overload)), arguments_(arguments_of(overload_)) {
  if (index >= operators().size()) return;
  const Operator& op = operators()[index];
  traits_ = {.matrix = op.matrix,
             .lacks_low = op.lacks_low,
             .one_type =
                 op.one_type || (op.classes.front() == CastClass::kPromote && !op.native_promotion),
             .float_statistics = op.float_statistics,
             .batch_norm = op.input_only && op.updates_statistics,
             .alone = op.alone,
             .sums = op.sums,
             .steep = steep_types_of(op)};
  input_only_ = op.input_only;
  guards_scalars_ = op.guards_scalars;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (names_a_weight(arguments_[i])) weights_.push_back(i);
    const bool is_running = arguments_[i] == "running_mean" || arguments_[i] == "running_var";
    if (op.updates_statistics && is_running) statistics_.push_back(i);
  }
}

std::optional<std::size_t> Row::condition_argument(const Frame& frame) const {
  const ConditionalRule* condition = frame.policy->condition_of(index_);
  if (condition == nullptr) return std::nullopt;
  const auto found = std::ranges::find(arguments_, condition->argument);
  if (found == arguments_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - arguments_.begin());
}

bool Row::condition_holds(const Frame& frame, std::string_view value) const {
  return is_condition_value(value, frame.policy->condition_of(index_)->values);
}

void Row::refuse(const Frame& frame) const {
  raise<UnsupportedError>(
      "autocast", "operator '", overload_,
      "' is banned by the policy of this scope: ", frame.source->why(overload_),
      "; call it with casts off (DisableCasts), or give it another class with Policy::with");
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

std::string text_of(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  return {digits, end.ptr};
}

std::string text_of(at::ScalarType value) {
  const std::optional<DType> dtype = dtype_of(value);
  return dtype ? std::string(name_of(*dtype)) : c10::toString(value);
}

std::string text_of(const at::Scalar& value) {
  if (value.isBoolean()) return text_of(value.toBool());
  if (value.isFloatingPoint()) return text_of(value.toDouble());
  return value.isIntegral(/*includeBool=*/false) ? text_of(value.toLong()) : std::string();
}

std::string text_of(const c10::SymInt& value) {
  const std::optional<std::int64_t> known = value.maybe_as_int();
  return known ? text_of(*known) : std::string();
}

}  // namespace mezzo::casting
