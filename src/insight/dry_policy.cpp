#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "core/raise.h"
#include "insight/dry_findings.h"
#include "insight/tensor_range.h"

namespace mezzo::insight {

using detail::DryCall;
using detail::kMostRoundings;
using detail::kTargets;
using detail::TargetMeasure;
using detail::TargetType;

namespace {

constexpr double kMostInFloat8 = 0.125;

std::string figure(double value) {
  std::ostringstream text;
  text.precision(3);
  text << value;
  return text.str();
}

std::string place_of(const Operator& op) {
  return op.module.empty() ? std::string() : " (" + op.module + ")";
}

/// Why an operator call does not suit a 16-bit type; nothing if it does.
std::optional<std::string> fault_of(const DryCall& call, std::size_t place) {
  const TargetType& target = kTargets[place];
  const TargetMeasure& measure = call.targets[place];
  if (!measure.measured) return std::nullopt;
  const std::string name(target.name), where = place_of(call.forward);
  const double result = largest_magnitude(call.forward.output);
  double input = 0;
  for (const TensorRange& range : call.forward.inputs)
    input = std::max(input, largest_magnitude(range));
  const bool differs = measure.own > 0;  // it computes in the low type
  if (differs && result > target.largest)
    return "its result reaches " + figure(result) + where + ", " + name + " ends at " +
           figure(target.largest);
  if (differs && input > target.largest)
    return "its input reaches " + figure(input) + where + ", " + name + " ends at " +
           figure(target.largest);
  if (std::isinf(measure.own))
    return "its result is not finite in " + name + where + ", and reaches " + figure(result) +
           " in float";
  if (differs && result > target.largest / 2)
    return "its result reaches " + figure(result) + where + ", more than half of what " + name +
           " holds";
  if (measure.own > kMostRoundings * target.rounding)
    return "its result errs by " + figure(100 * measure.own) + " %" + where;
  if (std::isinf(measure.backward))
    return "its gradient is not finite in " + name + where + ", and is in float";
  if (measure.backward > kMostRoundings * target.rounding)
    return "its gradient errs by " + figure(100 * measure.backward) + " %" + where;
  return std::nullopt;
}

/// The name by which a policy knows an operator: in-place ones have no class of their own.
std::string policy_name(const DryCall& call) {
  std::string name = call.forward.name;
  if (name.ends_with('_') && name.front() != '_') name.pop_back();
  return name;
}

/// An overload's own name, as classify() takes it.
std::string overload_name(const DryCall& call) {
  return call.overload.find("::") == std::string::npos ? "aten::" + call.overload : call.overload;
}

CastClass class_of(const Policy& policy, const DryCall& call) {
  try {
    return policy.classify(overload_name(call));
  } catch (const Error&) {
    return CastClass::kNeutral;
  }
}

/// A policy that grows by one operator after another.
class GrowingAdvice {
 public:
  explicit GrowingAdvice(Policy policy) : policy_(std::move(policy)) {}

  void keep(const DryCall& call, const std::string& why) {
    const std::string name = policy_name(call);
    if (std::ranges::find(reasons_, name, &PolicyReason::name) != reasons_.end()) return;
    try {
      if (policy_.classify(name) == CastClass::kFloat) return;
      policy_ = policy_.with(name, CastClass::kFloat);
    } catch (const Error&) {
      return;  // no policy can name it
    }
    const bool in_place = name != call.forward.name;
    reasons_.push_back({name, CastClass::kFloat,
                        why + (in_place ? "; in place it keeps its first argument's type" : "")});
  }

  const Policy& policy() const noexcept { return policy_; }
  std::vector<PolicyReason>& reasons() noexcept { return reasons_; }

 private:
  Policy policy_;
  std::vector<PolicyReason> reasons_;
};

AdvisedPolicy policy_for_low(const detail::DryFindings& found, std::size_t place) {
  const TargetType& target = kTargets[place];
  GrowingAdvice advice(Policy::defaults(target.type));
  for (const DryCall& call : found.calls) {
    const std::optional<std::string> fault = fault_of(call, place);
    if (!fault) continue;
    advice.keep(call, *fault);
    for (const std::size_t feeder : call.targets[place].feeders) {
      advice.keep(found.calls[feeder], "its result feeds " + call.forward.name +
                                           place_of(call.forward) + ", which cannot bear that " +
                                           "it is rounded");
    }
  }
  return {advice.policy(), target.type, detail::scale_for(found.largest_gradient, target),
          std::move(advice.reasons())};
}

/// Products by the worst of their calls.
AdvisedPolicy estimate_for_float8(const detail::DryFindings& found, std::size_t place) {
  const AdvisedPolicy around = policy_for_low(found, 1);
  std::vector<std::pair<std::string, const DryCall*>> worst;
  for (const DryCall& call : found.calls) {
    if (!call.is_product || !call.targets[place].measured) continue;
    const std::string name = policy_name(call);
    const auto known = std::ranges::find(worst, name, &decltype(worst)::value_type::first);
    if (known == worst.end()) {
      worst.emplace_back(name, &call);
    } else if (call.targets[place].own > known->second->targets[place].own) {
      known->second = &call;
    }
  }
  std::vector<PolicyReason> reasons;
  const std::string type(kTargets[place].name);
  for (const auto& [name, call] : worst) {
    const double error = call->targets[place].own;
    const bool bears = error <= kMostInFloat8;
    const CastClass in_policy = around.classify(name);
    reasons.push_back(
        {name, in_policy,
         (bears ? type + " would bear it" : type + " loses too much, keep it 16 bits wide") +
             ": with a scale per operand its result errs by at most " + figure(100 * error) + " %" +
             place_of(call->forward)});
  }
  return {around, kTargets[place].type, 1, std::move(reasons)};
}

}  // namespace

std::size_t detail::place_of_target(at::ScalarType type, std::string_view where) {
  for (std::size_t i = 0; i < kTargets.size(); ++i) {
    if (kTargets[i].type == type) return i;
  }
  raise<ConfigError>(where, "got ", c10::toString(type),
                     "; expected Half, BFloat16, Float8_e4m3fn or Float8_e5m2");
}

double detail::scale_for(double largest_gradient, const TargetType& target) {
  if (target.type != at::kHalf || largest_gradient <= 0) return 1;
  const double room = target.largest / 2 / largest_gradient;
  return std::clamp(std::exp2(std::floor(std::log2(room))), 1.0, 65536.0);
}

AdvisedPolicy DryRun::policy(at::ScalarType low) const {
  const std::size_t place = detail::place_of_target(low, "policy of a dry run");
  return kTargets[place].is_float8 ? estimate_for_float8(*found_, place)
                                   : policy_for_low(*found_, place);
}

std::vector<ClassCost> DryRun::costs(at::ScalarType low) const {
  const std::size_t place = detail::place_of_target(low, "costs of a dry run");
  if (kTargets[place].is_float8)
    raise<ConfigError>("costs of a dry run", "got ", c10::toString(low),
                       "; expected Half or BFloat16: float8 is not timed");
  const Policy policy = Policy::defaults(low);
  std::vector<ClassCost> costs;
  for (const DryCall& call : found_->calls) {
    if (!call.targets[place].measured) continue;
    const CastClass kind = class_of(policy, call);
    auto cost = std::ranges::find(costs, kind, &ClassCost::cast_class);
    if (cost == costs.end()) cost = costs.insert(costs.end(), ClassCost{.cast_class = kind});
    ++cost->calls;
    cost->float_seconds += call.seconds;
    cost->low_seconds += call.targets[place].seconds;
    cost->float_bytes += call.bytes;
    cost->low_bytes += call.targets[place].bytes;
  }
  std::ranges::sort(costs, {}, &ClassCost::cast_class);
  return costs;
}

void AdvisedPolicy::to_toml(std::ostream& out) const {
  const bool is_estimate = target_ != low();
  if (is_estimate) {
    const TargetType& target = kTargets[detail::place_of_target(target_, "to_toml")];
    out << "# An estimate for " << target.name << "; policies are for 16-bit types.\n";
    for (const PolicyReason& reason : reasons_)
      out << "# " << reason.name << ": " << reason.text << '\n';
  }
  if (loss_scale_ > 1) out << "# Loss scales up to " << loss_scale_ << " suit these steps.\n";
  if (is_estimate || reasons_.empty()) return Policy::to_toml(out);
  const auto target = std::ranges::find(kTargets, target_, &TargetType::type);
  out << "dtype = \"" << target->name << "\"\n\n[operators]\nfloat = [\n";
  for (const PolicyReason& reason : reasons_)
    out << "  \"" << reason.name << "\",  # " << reason.text << '\n';
  out << "]\n";
}

std::string AdvisedPolicy::toml() const {
  std::ostringstream out;
  to_toml(out);
  return out.str();
}

}  // namespace mezzo::insight
