// Why a step was skipped, in one sentence, from the model's last call alone.
#pragma once

#include <string>

namespace mezzo::amp::detail {
class OptimizerState;
}

namespace mezzo::insight {

/// "; explained: mul (between stem and head) overflowed", or "; not explained: ..." with the
/// reason. Right after the step, while its gradients are gone. Throws nothing.
std::string explain_skip(mezzo::amp::detail::OptimizerState& optimizer);

}  // namespace mezzo::insight
