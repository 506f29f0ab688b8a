#include "parallel/gradient_claims.h"

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace mezzo::parallel {
namespace {

struct ClaimedGradients {
  std::mutex mutex;
  std::unordered_map<const void*, const GradientClaims*> owners;
};

ClaimedGradients& claimed_gradients() {
  // Never destroyed: reducers in static objects give up their claims at exit.
  static ClaimedGradients* const instance = std::make_unique<ClaimedGradients>().release();
  return *instance;
}

}  // namespace

GradientClaims::GradientClaims(std::span<const ReducedParameter> parameters, Lost lost)
    : lost_(std::move(lost)) {
  ClaimedGradients& all = claimed_gradients();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::map<const GradientClaims*, std::string> losers;
  for (const ReducedParameter& parameter : parameters) {
    const GradientClaims*& owner = all.owners[parameter.tensor.unsafeGetTensorImpl()];
    if (owner != nullptr) losers.emplace(owner, parameter.name);
    owner = this;
  }
  // Under the lock: none of them goes meanwhile.
  for (const auto& [loser, name] : losers) loser->lost_(name);
}

GradientClaims::~GradientClaims() {
  ClaimedGradients& all = claimed_gradients();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::erase_if(all.owners, [this](const auto& item) { return item.second == this; });
}

}  // namespace mezzo::parallel
