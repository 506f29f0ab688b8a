#include "insight/advisor.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "amp/session.h"
#include "insight/cause.h"
#include "insight/float_search.h"

namespace mezzo::insight {

namespace {

constexpr int kMostScales = 4;

/// The policy with an operator in float; nothing if it cannot say so, or says so already.
std::optional<Policy> with_float(const Policy& policy, std::string name) {
  // In-place operators have no class of their own.
  if (name.ends_with('_')) name.pop_back();
  if (name.find("::") == std::string::npos) name = "aten::" + name;
  try {
    if (policy.classify(name) == CastClass::kFloat) return std::nullopt;
    return policy.with(name, CastClass::kFloat);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The names of these operators that a policy could keep in float and does not yet.
std::vector<std::string> lowered(const Policy& policy, const std::vector<std::string>& operators) {
  std::vector<std::string> names;
  for (const std::string& name : operators) {
    if (std::ranges::find(names, name) == names.end() && with_float(policy, name))
      names.push_back(name);
  }
  return names;
}

/// An operator, then those that its inputs came from, nearest first: what rounds in float already
/// may have been given what a low type had lost.
std::vector<std::string> operators_before(const Trace& trace, int origin) {
  if (origin < 0) return {};
  constexpr std::size_t kMost = 8;
  std::vector<int> open{trace.anchor_of(origin)};
  const bool has_operator = trace.unit(origin).forward >= 0;
  std::vector<std::string> names{trace.unit(has_operator ? open.front() : origin).name};
  for (std::size_t i = 0; i < open.size() && names.size() < kMost; ++i) {
    for (const int before : trace.unit(open[i]).reads) {
      if (std::ranges::find(open, before) != open.end()) continue;
      open.push_back(before);
      names.push_back(trace.name_of(before));
    }
  }
  return names;
}

/// The operators of the forward pass.
std::vector<std::string> operators_of(const Trace& trace) {
  std::vector<std::string> names;
  for (int i = 0; i < trace.size(); ++i) {
    if (!trace.unit(i).backward) names.push_back(trace.unit(i).name);
  }
  return names;
}

Policy keeping(Policy policy, const std::vector<std::string>& names) {
  for (const std::string& name : names) policy = with_float(policy, name).value_or(policy);
  return policy;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

/// Without what tells networks of several apart.
std::string path_alone(const std::string& module) {
  return module.substr(0, module.find(" of network "));
}

/// The modules at a fault, the nearest first: that of weights that are to blame, or those around an
/// operator.
std::vector<std::string> modules_at(const Trace& trace, const Trace::Origin& origin) {
  std::vector<std::string> modules;
  if (origin.unit >= 0) modules = trace.modules_around(origin.unit);
  for (const BadLeaf* leaf : origin.leaves) {
    if (leaf->weight != nullptr) modules.push_back(leaf->weight->module);
  }
  std::ranges::transform(modules, modules.begin(), path_alone);
  return modules;
}

std::vector<std::string> modules_in(const ModulePaths& paths) {
  std::vector<std::string> modules;
  for (const NamedTensor& each : paths.all()) {
    std::string path = path_alone(each.module);
    if (std::ranges::find(modules, path) == modules.end()) modules.push_back(std::move(path));
  }
  return modules;
}

}  // namespace

Advisor::Advisor(StepTrial& step, const ModulePaths& paths, const Trace& trace,
                 const Trace::Origin& origin)
    : step_(step), paths_(paths), trace_(trace), origin_(origin) {}

std::vector<Advice> Advisor::advice(const Operator* first, Cause cause,
                                    const std::string& parameter) {
  std::vector<Advice> found;
  const bool backward = first != nullptr && first->backward;
  if (backward) try_scale(found);
  const auto& plan = step_.session().plan();
  bool helps = false;
  if (plan.policy) {
    helps = try_policy(found);
  } else if (plan.convert) {
    helps = try_keep_float(found);
  }
  if (!helps) try_bfloat16(found);
  // A scale below 1 takes range from all other gradients.
  std::stable_partition(found.begin(), found.end(), [](const Advice& advice) {
    return !advice.loss_scale || *advice.loss_scale >= 1;
  });
  if (found.empty())
    found.push_back(
        {.text = "run this step in float (opt_level \"O0\"), where it passes", .tried = true});
  if (!backward || cause != Cause::kGradientOverflow)
    found.push_back({.text = remedy(cause, first, parameter)});
  return found;
}

bool Advisor::try_scale(std::vector<Advice>& into) {
  const double scale = step_.scale();
  const auto passes = [&](int halvings) {
    return step_.attempt({}, std::ldexp(scale, -halvings)).passed;
  };
  // The fewest halvings that help, between one that fails and one that passes.
  int fails = 0, helps = 0, runs = 0;
  for (const int halvings : {4, 12, 24}) {
    if (runs == kMostScales || !step_.may_run()) break;
    ++runs;
    if (passes(halvings)) {
      helps = halvings;
      break;
    }
    fails = halvings;
  }
  if (helps == 0) return false;
  while (helps - fails > 1 && runs < kMostScales && step_.may_run()) {
    ++runs;
    const int middle = (fails + helps) / 2;
    (passes(middle) ? helps : fails) = middle;
  }
  const double lower = std::ldexp(scale, -helps);
  const bool dynamic = step_.session().plan().scale_rules.dynamic;
  into.push_back({.text = "with a loss scale of " + number(lower) + " instead of " + number(scale) +
                          " the step passes" +
                          (dynamic ? "; a dynamic scale comes down to it by itself" : ""),
                  .loss_scale = lower,
                  .tried = true});
  return true;
}

bool Advisor::try_policy(std::vector<Advice>& into) {
  const std::optional<Policy> policy = step_.policy();
  if (!policy) return false;
  const std::vector<std::string> names = search_float(
      step_, paths_, trace_, origin_,
      {.near =
           [&](const Trace& trace, const Trace::Origin& origin) {
             return lowered(*policy, operators_before(trace, origin.unit));
           },
       .all = [&](const Trace& trace) { return lowered(*policy, operators_of(trace)); },
       .keeping = [&](const auto& kept) { return Precision{.policy = keeping(*policy, kept)}; }},
      runs_for_search());
  if (names.empty()) return false;
  into.push_back({.text = "keep " + joined(names) + " in float: policy.with(\"" + names.front() +
                          "\", CastClass::kFloat)" + (names.size() > 1 ? ", ..." : ""),
                  .policy = keeping(*policy, names),
                  .tried = true});
  return true;
}

bool Advisor::try_keep_float(std::vector<Advice>& into) {
  const std::vector<std::string> names =
      search_float(step_, paths_, trace_, origin_,
                   {.near = modules_at,
                    .all = [&](const Trace&) { return modules_in(paths_); },
                    .keeping = [](const auto& kept) { return Precision{.keep_float = kept}; }},
                   runs_for_search());
  if (names.empty()) return false;
  std::vector<std::string> patterns = step_.session().options().keep_float;
  patterns.insert(patterns.end(), names.begin(), names.end());
  into.push_back({.text = "keep " + joined(names) + " in float (Options::keep_float)",
                  .keep_float = std::move(patterns),
                  .tried = true});
  return true;
}

/// One is left for bfloat16.
int Advisor::runs_for_search() const {
  return StepTrial::kMostRuns - step_.runs() - 1;
}

bool Advisor::try_bfloat16(std::vector<Advice>& into) {
  const std::optional<Policy> policy = step_.policy();
  if (!policy || policy->low() != at::kHalf || !step_.may_run()) return false;
  const Precision precision{.policy = Policy::defaults(at::kBFloat16)};
  if (!step_.attempt(precision, step_.scale()).passed) return false;
  into.push_back({.text = "bfloat16 (opt_level \"O4\") has the range of float: the step passes",
                  .tried = true});
  return true;
}

}  // namespace mezzo::insight
