#include "casting/row.h"

#include <algorithm>
#include <charconv>

#include "operators/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace mezzo::casting {
namespace {

// How many of the overload's arguments stand before that name; nothing where it has no such
// argument.
std::optional<std::size_t> position_of(std::string_view overload, std::string_view argument) {
  const std::size_t dot = overload.find('.');
  std::string name(overload.substr(0, dot));
  if (name.find("::") == std::string::npos) name.insert(0, "aten::");
  const std::string suffix(dot == std::string_view::npos ? "" : overload.substr(dot + 1));
  const auto op = c10::Dispatcher::singleton().findSchema({name, suffix});
  if (!op) return std::nullopt;
  const std::optional<int> index = op->schema().argumentIndexWithName(argument);
  return index ? std::optional<std::size_t>(static_cast<std::size_t>(*index)) : std::nullopt;
}

}  // namespace

Row::Row(std::size_t index, std::string overload) : index_(index), overload_(std::move(overload)) {
  if (index >= operators().size()) return;
  const Operator& op = operators()[index];
  matrix_half_ = op.matrix;
  matrix_bfloat16_ = op.matrix;
  input_only_ = op.input_only;
}

std::optional<std::size_t> Row::condition_argument(const Frame& frame) const {
  const ConditionalRule* condition = frame.policy->condition_of(index_);
  return condition == nullptr ? std::nullopt : position_of(overload_, condition->argument);
}

bool Row::condition_holds(const Frame& frame, std::string_view value) const {
  const std::vector<std::string>& values = frame.policy->condition_of(index_)->values;
  return std::find(values.begin(), values.end(), value) != values.end();
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

}  // namespace mezzo::casting
