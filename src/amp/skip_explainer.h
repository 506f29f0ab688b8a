// A room above explains skipped steps (Options::explain_skips): it registers here when it is
// linked.
#pragma once

#include <string>

namespace mezzo::amp::detail {

class OptimizerState;

/// Says why the step of an optimizer failed, by the last calls of its networks: text that goes
/// behind the reason. Leaves no trace, and throws nothing.
using SkipExplainer = std::string (*)(OptimizerState&);

void set_skip_explainer(SkipExplainer explainer) noexcept;

/// Null if none was registered.
SkipExplainer skip_explainer() noexcept;

}  // namespace mezzo::amp::detail
