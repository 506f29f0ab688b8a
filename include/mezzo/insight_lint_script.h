// Looks at a TorchScript module before it runs in mixed precision.
#pragma once

#include <vector>

#include "mezzo/export.h"
#include "mezzo/insight_diagnosis.h"

namespace torch::jit {
struct Module;
}

namespace mezzo::insight {

/// Checks a traced or scripted module without running it, as lint() checks networks. `where` is the
/// parameter, the buffer or the operator. Errors come first, then warnings, then hints; empty if
/// nothing is found. Kinds: "range", "buffer", "sizes" and "epsilon" as for lint(); "mask" for
/// numbers beyond float16 that the code of `forward` gives to an operator. `mezzo lint net.pt`
/// prints them.
MEZZO_API std::vector<Finding> lint_script(const torch::jit::Module& module);

}  // namespace mezzo::insight
