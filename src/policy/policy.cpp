#include "mezzo/policy.h"

#include <map>
#include <mutex>

#include "core/torch.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "core/scalar_type.h"
#include "operators/operators.h"
#include "policy/compiled.h"
#include "policy/registry.h"
#include "policy/toml.h"

namespace mezzo {
namespace {

constexpr std::string_view kAten = "aten::";

std::string with_namespace(std::string_view op) {
  return op.find("::") == std::string_view::npos ? std::string(kAten) + std::string(op)
                                                 : std::string(op);
}

/// The overloads that the dispatcher has under a name, which may be a base name: full names.
std::vector<std::string> dispatcher_overloads(std::string_view op) {
  const std::string wanted = with_namespace(op);
  std::vector<std::string> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    std::string full = name.name;
    if (!name.overload_name.empty()) (full += '.') += name.overload_name;
    if (name.name != wanted && full != wanted) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (handle && !handle->schema().is_mutable()) found.push_back(full);
  }
  return found;
}

/// Gives rows to operators that only the dispatcher knows, so that rules can name them.
void learn(std::string_view op) {
  if (!rows_named(op).empty() || is_foreign(op)) return;
  for (const std::string& overload : dispatcher_overloads(op)) row_for(overload);
}

std::optional<c10::OperatorHandle> handle_of(std::size_t row) {
  const std::string full = with_namespace(row_name(row));
  const std::size_t dot = full.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)});
}

/// Has an argument a text that a condition could look at? Tensors, lists, devices and the like have
/// none.
bool has_text(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::BoolType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::SymIntType:
      return true;
    default:
      return false;
  }
}

/// Every overload must have the argument that its condition looks at, and one with a text.
void check_argument(const ConditionalRule& rule) {
  const auto handle = handle_of(rule.row);
  if (!handle) return;
  std::string names;
  for (const c10::Argument& argument : handle->schema().arguments()) {
    if (argument.name() == rule.argument) {
      if (has_text(argument)) return;
      raise<ConfigError>("policy", "'", row_name(rule.row), "': the argument '", rule.argument,
                         "' is a ", argument.real_type()->str(),
                         "; a condition looks at a string, a number, a boolean or a dtype");
    }
    (names += names.empty() ? "" : ", ") += argument.name();
  }
  raise<ConfigError>("policy", "'", row_name(rule.row), "' has no argument '", rule.argument,
                     "'; it has ", names);
}

}  // namespace

struct Policy::State {
  explicit State(Rules given) : rules(std::move(given)), view(rules) {}
  Rules rules;
  CompiledPolicy view;

  static std::shared_ptr<const State> of_defaults(DType low);
};

/// The defaults are asked for often: one state of each type serves until an operator is registered.
std::shared_ptr<const Policy::State> Policy::State::of_defaults(DType low) {
  struct Made {
    std::uint64_t version = 0;
    std::shared_ptr<const State> state;
  };
  static std::mutex mutex;
  static auto* const all = new std::map<DType, Made>;  // threads may outlive main
  const std::lock_guard lock(mutex);
  Made& made = (*all)[low];
  const std::uint64_t version = registration_version();
  if (made.state == nullptr || made.version != version)
    made = {version, std::make_shared<const State>(Rules(low))};
  return made.state;
}

Policy::Policy(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Policy Policy::defaults(at::ScalarType low) {
  return Policy(State::of_defaults(low_dtype_of(low, "policy")));
}

at::ScalarType Policy::low() const noexcept {
  return state_->view.low();
}

Policy Policy::with(std::string_view op, CastClass cast_class) const {
  learn(op);
  return Policy(std::make_shared<const State>(state_->rules.with(op, cast_class)));
}

Policy Policy::with_conditional(std::string_view op, std::string_view argument,
                                std::vector<std::string> values) const {
  learn(op);
  Rules changed = state_->rules.with_conditional(op, argument, std::move(values));
  for (const ConditionalRule& rule : changed.conditionals()) check_argument(rule);
  return Policy(std::make_shared<const State>(std::move(changed)));
}

Policy Policy::without_bans() const {
  return Policy(std::make_shared<const State>(state_->rules.without_bans()));
}

CastClass Policy::classify(std::string_view op) const {
  learn(op);
  return state_->rules.classify(op);
}

std::string Policy::why(std::string_view op) const {
  learn(op);
  return state_->rules.why(op);
}

Policy Policy::from_toml(std::istream& in, std::string_view name) {
  const PolicyFile file = read_policy_file(in, name);
  return changed_by(file, name, defaults(scalar_type_of(file.low)));
}

void Policy::to_toml(std::ostream& out) const {
  write_policy_file(state_->rules, out);
}

const CompiledPolicy& compiled(const Policy& policy) noexcept {
  return policy.state_->view;
}

}  // namespace mezzo
