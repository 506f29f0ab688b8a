#include <torch/serialize/archive.h>

#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/param_state.h"
#include "mezzo/model_values.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

constexpr const char* kApplied = "mezzo_applied_steps";
constexpr const char* kSkipped = "mezzo_skipped_steps";

/// While it lives, the state of an optimizer is float: what is written is, whatever the level.
class FloatState {
 public:
  explicit FloatState(torch::optim::Optimizer& optimizer) {
    for (auto& [key, state] : optimizer.state()) {
      detail::visit_tensors(*state, [this](at::Tensor& tensor) {
        if (!detail::is_low(tensor)) return;
        changed_.emplace_back(&tensor, tensor);
        tensor = tensor.to(at::kFloat);
      });
    }
  }
  ~FloatState() {
    for (auto& [place, before] : changed_) *place = before;
  }
  FloatState(const FloatState&) = delete;
  FloatState& operator=(const FloatState&) = delete;

 private:
  std::vector<std::pair<at::Tensor*, at::Tensor>> changed_;
};

/// State follows the type of the parameter that it belongs to; that of fused optimizers is float at
/// least.
void follow_parameters(detail::OptimizerState& optimizer) {
  const bool is_fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer.inner()) != nullptr;
  for (const detail::Slot& slot : optimizer.slots()) {
    const auto found = optimizer.inner().state().find(slot.master.unsafeGetTensorImpl());
    if (found == optimizer.inner().state().end()) continue;
    const bool stays_float = is_fused && detail::is_low(slot.master);
    const at::ScalarType type = stays_float ? at::kFloat : slot.master.scalar_type();
    detail::visit_tensors(*found->second, [&](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(type);
    });
  }
}

}  // namespace

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const Optimizer& optimizer) {
  const FloatState as_float(optimizer.state()->inner());
  optimizer.inner().save(archive);
  archive.write(kApplied, c10::IValue(optimizer.applied_steps()));
  archive.write(kSkipped, c10::IValue(optimizer.skipped_steps()));
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           Optimizer& optimizer) {
  optimizer.inner().load(archive);
  follow_parameters(*optimizer.state());
  c10::IValue applied;
  c10::IValue skipped;
  if (archive.try_read(kApplied, applied) && archive.try_read(kSkipped, skipped)) {
    optimizer.state()->set_steps(applied.toInt(), skipped.toInt());
  }
  return archive;
}

}  // namespace mezzo::amp
