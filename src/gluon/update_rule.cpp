#include "gluon/update_rule.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/nearest.h"
#include "gluon/kernel_updates.h"
#include "gluon/operator_updates.h"

namespace mezzo::gluon {
namespace {

constexpr const char* kRuleWhere = "gluon::Trainer";

constexpr HyperKey kCommonKeys[] = {
    {"wd", &Hyper::wd, 0},
    {"clip_gradient", &Hyper::clip_gradient, 0},
    {"rescale_grad", &Hyper::rescale_grad, 1},
    {"epsilon", &Hyper::epsilon, 1e-8},
};
constexpr HyperKey kMomentumKeys[] = {{"momentum", &Hyper::momentum, 0}};
constexpr HyperKey kAdamKeys[] = {{"beta1", &Hyper::beta1, 0.9}, {"beta2", &Hyper::beta2, 0.999}};
constexpr HyperKey kAdamWKeys[] = {{"beta1", &Hyper::beta1, 0.9},
                                   {"beta2", &Hyper::beta2, 0.999},
                                   {"epsilon", &Hyper::epsilon, 1e-6},
                                   {"correct_bias", &Hyper::correct_bias, 1}};
constexpr HyperKey kAdaGradKeys[] = {{"epsilon", &Hyper::epsilon, 1e-7}};
constexpr HyperKey kRmsPropKeys[] = {{"gamma1", &Hyper::gamma1, 0.9},
                                     {"gamma2", &Hyper::gamma2, 0.9},
                                     {"centered", &Hyper::centered, 0},
                                     {"clip_weights", &Hyper::clip_weights, 0}};
constexpr HyperKey kLambKeys[] = {
    {"beta1", &Hyper::beta1, 0.9},           {"beta2", &Hyper::beta2, 0.999},
    {"epsilon", &Hyper::epsilon, 1e-6},      {"lower_bound", &Hyper::lower_bound, 0},
    {"upper_bound", &Hyper::upper_bound, 0}, {"bias_correction", &Hyper::bias_correction, 1}};
constexpr HyperKey kSignumKeys[] = {{"momentum", &Hyper::momentum, 0.9},
                                    {"wd_lh", &Hyper::wd_lh, 0}};

std::size_t momentum_state(const Hyper& hyper) {
  return hyper.momentum != 0 ? 1 : 0;
}
std::size_t one_state(const Hyper&) {
  return 1;
}
std::size_t two_states(const Hyper&) {
  return 2;
}
std::size_t rmsprop_states(const Hyper& hyper) {
  return hyper.centered != 0 ? 3 : 1;
}

constexpr UpdateRule kRules[] = {
    {"sgd", 0.01, kMomentumKeys, momentum_state, sgd_by_operators, sgd_by_kernels},
    {"nag", 0.01, kMomentumKeys, momentum_state, nag_by_operators, nullptr},
    {"adam", 0.001, kAdamKeys, two_states, adam_by_operators, adam_by_kernels},
    {"adamw", 0.001, kAdamWKeys, two_states, adamw_by_operators, adamw_by_kernels},
    {"adagrad", 0.01, kAdaGradKeys, one_state, adagrad_by_operators, nullptr},
    {"rmsprop", 0.001, kRmsPropKeys, rmsprop_states, rmsprop_by_operators, nullptr},
    {"lamb", 0.001, kLambKeys, two_states, lamb_by_operators, lamb_by_kernels},
    {"signum", 0.01, kSignumKeys, momentum_state, signum_by_operators, nullptr},
};

const HyperKey* key_in(std::span<const HyperKey> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &HyperKey::name);
  return found == keys.end() ? nullptr : &*found;
}

[[noreturn]] void raise_unknown_key(const UpdateRule& rule, const std::string& name) {
  std::vector<std::string_view> known{"learning_rate", "eps"};
  for (const HyperKey& key : rule.keys) known.push_back(key.name);
  for (const HyperKey& key : kCommonKeys) known.push_back(key.name);
  raise<ConfigError>(kRuleWhere, "'", rule.name, "' has no argument '", name, "'",
                     did_you_mean(name, known));
}

/// The numbers for which an optimizer means anything.
void check_hyper(const UpdateRule& rule, const std::string& name, double value) {
  const bool is_share = name == "beta1" || name == "beta2" || name == "gamma1" || name == "gamma2";
  const bool not_negative = name == "learning_rate" || name == "wd" || name == "momentum" ||
                            name == "epsilon" || name == "eps";
  if (std::isfinite(value) && (!is_share || (value >= 0 && value < 1)) &&
      (!not_negative || value >= 0)) {
    return;
  }
  raise<ConfigError>(kRuleWhere, "'", name, "' of '", rule.name, "' is ", value, "; expected ",
                     is_share ? "0 or more and below 1"
                              : (not_negative ? "a finite number, 0 or more" : "a finite number"));
}

}  // namespace

const UpdateRule& rule_named(std::string_view name) {
  const auto* const found = std::ranges::find(kRules, name, &UpdateRule::name);
  if (found != std::end(kRules)) return *found;
  std::vector<std::string_view> known;
  std::string listed;
  for (const UpdateRule& rule : kRules) {
    known.push_back(rule.name);
    (listed += listed.empty() ? "" : ", ") += rule.name;
  }
  raise<ConfigError>(kRuleWhere, "there is no optimizer '", name, "'; expected one of ", listed,
                     did_you_mean(name, known));
}

Hyper hyper_of(const UpdateRule& rule, const std::map<std::string, double>& given) {
  Hyper hyper;
  hyper.learning_rate = rule.learning_rate;
  for (const HyperKey& key : kCommonKeys) hyper.*key.field = key.initial;
  for (const HyperKey& key : rule.keys) hyper.*key.field = key.initial;
  if (given.contains("eps") && given.contains("epsilon")) {
    raise<ConfigError>(kRuleWhere, "'eps' and 'epsilon' are the same argument; give one");
  }
  for (const auto& [name, value] : given) {
    const std::string_view own = name == "eps" ? "epsilon" : std::string_view(name);
    double Hyper::*field = name == "learning_rate" ? &Hyper::learning_rate : nullptr;
    if (const HyperKey* key = key_in(kCommonKeys, own)) field = key->field;
    if (const HyperKey* key = key_in(rule.keys, own)) field = key->field;
    if (field == nullptr) raise_unknown_key(rule, name);
    check_hyper(rule, name, value);
    hyper.*field = value;
  }
  return hyper;
}

}  // namespace mezzo::gluon
