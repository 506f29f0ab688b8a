// The casting layer inside LibTorch's dispatcher: which key it lives on, and its one-time
// installation.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/torch.h"
#include "policy/compiled.h"

namespace mezzo::casting {

/// Registers the kernels that a policy needs and that are not there yet: most of them once per
/// process, at first use. Thread-safe; at once for a policy that was installed before. Throws
/// UnsupportedError if every Autocast key that LibTorch leaves free was taken by another
/// library, and ConfigError if the dispatcher lacks an operator that the policy names.
void install_layer(const CompiledPolicy& policy);

/// The dispatch key of the layer: the first of AutocastPrivateUse1, IPU, HPU and XLA that nobody
/// had claimed. Undefined before install_layer().
c10::DispatchKey layer_key() noexcept;

/// An operator that has a kernel in the layer.
struct LayerOperator {
  std::string name;  // "softmax.int", "my_ops::roi_align"
  bool compiled;     // by a template over its declaration; else the boxed kernel serves it
};
std::vector<LayerOperator> layer_operators();

}  // namespace mezzo::casting
