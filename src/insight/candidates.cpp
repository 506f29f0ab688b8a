#include "mezzo/insight_candidates.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/scalar_type.h"
#include "insight/call_observer.h"
#include "insight/surroundings.h"
#include "insight/trial_rules.h"

namespace mezzo::insight {

namespace {

void add_once(std::vector<std::string>& names, std::string name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
}

/// Operators that a policy could keep in float.
class LowCandidates final : public CallListener {
 public:
  explicit LowCandidates(Policy policy) : policy_(std::move(policy)) {}

  void begins(const OperatorCall& call, bool) override {
    if (!call.computes()) return;
    std::string name = call.name();
    // In-place operators have no class of their own.
    if (name.ends_with('_')) name.pop_back();
    if (std::ranges::find(names_, name) != names_.end()) return;
    try {
      if (policy_.classify(name) == CastClass::kFloat) return;
      static_cast<void>(policy_.with(name, CastClass::kFloat));
    } catch (const Error&) {
      return;  // no policy can name it
    }
    names_.push_back(std::move(name));
  }
  void ended(const std::vector<at::Tensor>&) override {}

  std::vector<std::string> take_names() { return std::move(names_); }

 private:
  Policy policy_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> detail::modules_of(const LintSubject& subject) {
  if (subject.module == nullptr) raise<ConfigError>("modules_of", "the network is empty");
  std::vector<std::string> names;
  const auto parameters = subject.module->named_parameters();
  const auto buffers = subject.module->named_buffers();
  for (const auto* tensors : {&parameters, &buffers}) {
    for (const auto& item : *tensors) {
      if (!item.value().defined() || !is_network_type(item.value().scalar_type())) continue;
      const std::size_t dot = item.key().rfind('.');
      add_once(names, dot == std::string::npos ? item.key() : item.key().substr(0, dot));
    }
  }
  return names;
}

std::vector<std::string> detail::operators_of(const LintSubject& subject,
                                              const std::function<at::Tensor()>& loss) {
  if (subject.module == nullptr) raise<ConfigError>("operators_of", "the network is empty");
  if (!loss) raise<ConfigError>("operators_of", "got no function that computes the loss");
  std::vector<mezzo::amp::detail::ModelState*> models;
  at::ScalarType low = at::kHalf;
  if (subject.state != nullptr) {
    models.push_back(subject.state.get());
    if (const auto& policy = subject.state->operator_policy()) low = policy->low();
  }
  const Surroundings surroundings(subject.module->buffers());
  const TrialRules rules(models, {});
  LowCandidates candidates(Policy::defaults(low));
  const CallObserver observer(candidates);
  static_cast<void>(loss());
  return candidates.take_names();
}

}  // namespace mezzo::insight
