#include <torch/serialize/archive.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

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

/// State and options of an optimizer while a file is read into it: what the file has no state for
/// has none afterwards, and a file that cannot be read changes nothing.
class Replacement {
 public:
  explicit Replacement(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
    for (const auto& group : optimizer_.param_groups()) {
      options_.push_back(group.has_options() ? group.options().clone() : nullptr);
    }
    states_.swap(optimizer_.state());
  }

  /// The floating type of the state that a parameter had; nothing where it had none.
  std::optional<at::ScalarType> type_before(const at::Tensor& parameter) const {
    std::optional<at::ScalarType> type;
    const auto found = states_.find(parameter.unsafeGetTensorImpl());
    if (found == states_.end()) return type;
    detail::visit_tensors(*found->second, [&type](at::Tensor& tensor) {
      if (!type && tensor.is_floating_point()) type = tensor.scalar_type();
    });
    return type;
  }

  void undo() {
    optimizer_.state().swap(states_);
    for (std::size_t i = 0; i < options_.size(); ++i) {
      if (options_[i]) optimizer_.param_groups()[i].set_options(std::move(options_[i]));
    }
  }

 private:
  torch::optim::Optimizer& optimizer_;
  std::remove_cvref_t<decltype(optimizer_.state())> states_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;
};

/// State has the type that this optimizer's had (Adagrad makes its own from the network as it was
/// before a level cast it), else that of its parameter; that of fused optimizers is float at least.
void give_types(detail::OptimizerState& optimizer, const Replacement& replacement) {
  const bool is_fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer.inner()) != nullptr;
  for (const detail::Slot& slot : optimizer.slots()) {
    const auto found = optimizer.inner().state().find(slot.master.unsafeGetTensorImpl());
    if (found == optimizer.inner().state().end()) continue;
    const bool stays_float = is_fused && detail::is_low(slot.master);
    const at::ScalarType type = replacement.type_before(slot.master)
                                    .value_or(stays_float ? at::kFloat : slot.master.scalar_type());
    detail::visit_tensors(*found->second, [&](at::Tensor& tensor) {
      // A fused optimizer's single numbers are double whatever the parameter is.
      if (is_fused && tensor.dim() == 0) return;
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
  Replacement replacement(optimizer.inner());
  try {
    optimizer.inner().load(archive);
  } catch (...) {
    replacement.undo();
    throw;
  }
  give_types(*optimizer.state(), replacement);
  c10::IValue applied;
  c10::IValue skipped;
  if (archive.try_read(kApplied, applied) && archive.try_read(kSkipped, skipped)) {
    optimizer.state()->set_steps(applied.toInt(), skipped.toInt());
  }
  return archive;
}

}  // namespace mezzo::amp
