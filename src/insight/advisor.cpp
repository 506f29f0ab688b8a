#include "insight/advisor.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "amp/session.h"
#include "insight/cause.h"
#include "insight/observer.h"

namespace mezzo::insight {

namespace {

constexpr int kMostScales = 4;
constexpr int kMostRounds = 4;

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

/// An operator, then those that its inputs came from, nearest first: what rounds in float already
/// may have been given what a low type had lost.
std::vector<std::string> operators_before(const Trace& trace, int origin) {
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

}  // namespace

Advisor::Advisor(StepTrial& step, const ModulePaths& paths, const Trace& trace, int origin)
    : step_(step), paths_(paths), trace_(trace), origin_(origin) {}

std::vector<Advice> Advisor::advice(const Operator& first, Cause cause,
                                    const std::string& parameter) {
  std::vector<Advice> found;
  if (first.backward) try_scale(found);
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
  if (!first.backward || cause != Cause::kGradientOverflow)
    found.push_back({.text = remedy(cause, &first, parameter)});
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
  std::optional<Policy> policy = step_.policy();
  std::vector<std::string> names;
  const auto extend = [&](const Trace& trace, int origin) {
    for (const std::string& name : operators_before(trace, origin)) {
      const std::optional<Policy> wider = with_float(*policy, name);
      if (!wider) continue;
      policy = wider;
      names.push_back(name);
      return true;
    }
    return false;
  };
  if (!policy || !extend(trace_, origin_)) return false;
  for (int round = 0; round < kMostRounds && step_.may_run(); ++round) {
    Observer observer(paths_);
    const StepOutcome outcome = step_.attempt({.policy = policy}, step_.scale(), &observer);
    if (outcome.passed) {
      into.push_back({.text = "keep " + joined(names) + " in float: policy.with(\"" +
                              names.front() + "\", CastClass::kFloat)" +
                              (names.size() > 1 ? ", ..." : ""),
                      .policy = policy,
                      .tried = true});
      return true;
    }
    const int origin = observer.trace().origin_of(outcome.bad_gradients).unit;
    if (origin < 0 || !extend(observer.trace(), origin)) return false;
  }
  return false;
}

bool Advisor::try_keep_float(std::vector<Advice>& into) {
  std::vector<std::string> kept;
  std::vector<std::string> next = trace_.modules_around(origin_);
  for (int round = 0; round < kMostRounds && step_.may_run(); ++round) {
    // The nearest one that is not float yet.
    const auto found = std::ranges::find_if(next, [&](const std::string& module) {
      return std::ranges::find(kept, path_alone(module)) == kept.end();
    });
    if (found == next.end()) return false;
    kept.push_back(path_alone(*found));
    Observer observer(paths_);
    const StepOutcome outcome = step_.attempt({.keep_float = kept}, step_.scale(), &observer);
    if (outcome.passed) {
      into.push_back({.text = "keep " + joined(kept) + " in float (Options::keep_float)",
                      .keep_float = kept,
                      .tried = true});
      return true;
    }
    const int origin = observer.trace().origin_of(outcome.bad_gradients).unit;
    if (origin < 0) return false;
    next = observer.trace().modules_around(origin);
  }
  return false;
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
