#include "amp/skip_explainer.h"

#include <atomic>

namespace mezzo::amp::detail {

namespace {

std::atomic<SkipExplainer> the_skip_explainer = nullptr;

}  // namespace

void set_skip_explainer(SkipExplainer explainer) noexcept {
  the_skip_explainer = explainer;
}

SkipExplainer skip_explainer() noexcept {
  return the_skip_explainer;
}

}  // namespace mezzo::amp::detail
