#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "amp/checkpoint_parts.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/param_state.h"
#include "core/raise.h"
#include "mezzo/model_values.h"
#include "mezzo/optim.h"
#include "optim/kinds.h"

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

  /// The floating type of the state that a parameter had; nothing if it had none.
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

/// While it lives, a parameter that is listed twice is so once: LibTorch moves its state from the
/// file to the first listing and would give the second one nothing.
class ListedOnce {
 public:
  explicit ListedOnce(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
    std::unordered_set<const c10::TensorImpl*> seen;
    for (auto& group : optimizer.param_groups()) {
      for (at::Tensor& parameter : group.params()) {
        if (seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
        places_.emplace_back(&parameter, parameter);
        parameter = parameter.detach();
      }
    }
  }
  ~ListedOnce() {
    for (auto& [place, listed] : places_) {
      optimizer_.state().erase(place->unsafeGetTensorImpl());
      *place = listed;
    }
  }
  ListedOnce(const ListedOnce&) = delete;
  ListedOnce& operator=(const ListedOnce&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<std::pair<at::Tensor*, at::Tensor>> places_;
};

/// "2 parameter groups (4, 1)"
std::string describe_groups(const std::vector<std::int64_t>& sizes) {
  std::string text = std::to_string(sizes.size()) + " parameter group";
  if (sizes.size() != 1) text += 's';
  for (std::size_t i = 0; i < sizes.size(); ++i)
    text += (i == 0 ? " (" : ", ") + std::to_string(sizes[i]);
  return sizes.empty() ? text : text + ')';
}

std::string describe(const torch::optim::Optimizer& optimizer) {
  std::vector<std::int64_t> sizes;
  for (const auto& group : optimizer.param_groups())
    sizes.push_back(static_cast<std::int64_t>(group.params().size()));
  return "the state of an optimizer of class " + optim::name_of(optimizer) + " with " +
         describe_groups(sizes);
}

/// The content of an archive in the place of an optimizer, as far as it is known.
std::string describe(torch::serialize::InputArchive& archive) {
  try {
    torch::serialize::InputArchive groups;
    archive.read("param_groups", groups);
    at::Tensor count;
    groups.read("param_groups/size", count);
    std::vector<std::int64_t> sizes;
    std::string options;
    for (std::int64_t i = 0; i < count.item<std::int64_t>(); ++i) {
      torch::serialize::InputArchive group;
      groups.read("param_groups/" + std::to_string(i), group);
      at::Tensor size;
      group.read("params/size", size);
      sizes.push_back(size.item<std::int64_t>());
      torch::serialize::InputArchive named;
      group.read("options", named);
      if (!options.empty()) continue;
      for (const std::string& key : named.keys()) options += (options.empty() ? "" : ", ") + key;
    }
    return describe_groups(sizes) + " with the options " + options;
  } catch (const std::exception&) {
    return "what no optimizer wrote";
  }
}

/// State has the type that this optimizer's had (Adagrad makes its own from the network as it was
/// before a level cast it), else that of its parameter; that of fused optimizers is float at least.
void give_types(detail::OptimizerState& optimizer, const Replacement& replacement) {
  const bool is_fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer.inner()) != nullptr;
  for (const detail::Slot& slot : optimizer.slots().all()) {
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

/// torch::optim::Optimizer's own `save` writes nothing: a class without one would lose its state.
void refuse_what_saves_nothing(const torch::optim::Optimizer& optimizer) {
  if (optim::kind_of(optimizer) != nullptr || optimizer.state().empty()) return;
  torch::serialize::OutputArchive written;
  optimizer.save(written);
  std::ostringstream out;
  written.save_to(out);
  const std::string text = out.str();
  torch::serialize::InputArchive archive;
  archive.load_from(text.data(), text.size());
  if (!archive.keys().empty()) return;
  raise<UnsupportedError>("save", "the optimizer's class '",
                          c10::demangle(typeid(optimizer).name()),
                          "' has state, but its save() writes nothing, so that a resumed training "
                          "would begin without it; override save() and load() in the class");
}

}  // namespace

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const Optimizer& optimizer) {
  refuse_what_saves_nothing(optimizer.inner());
  const FloatState as_float(optimizer.shared()->inner());
  optimizer.inner().save(archive);
  archive.write(kApplied, c10::IValue(optimizer.applied_steps()));
  archive.write(kSkipped, c10::IValue(optimizer.skipped_steps()));
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           Optimizer& optimizer) {
  Replacement replacement(optimizer.inner());
  try {
    const ListedOnce listed_once(optimizer.inner());
    optimizer.inner().load(archive);
  } catch (const c10::Error&) {
    replacement.undo();
    raise("load", "the archive is not of this optimizer: expected ", describe(optimizer.inner()),
          ", got ", describe(archive));
  } catch (...) {
    replacement.undo();
    throw;
  }
  // A fused optimizer saves no state for a parameter that it has not stepped yet.
  const optim::OptimizerKind* const kind = optim::kind_of(optimizer.inner());
  if (kind != nullptr && kind->make_states != nullptr) kind->make_states(optimizer.inner());
  give_types(*optimizer.shared(), replacement);
  c10::IValue applied;
  c10::IValue skipped;
  if (archive.try_read(kApplied, applied) && archive.try_read(kSkipped, skipped)) {
    optimizer.shared()->steps().set_steps(applied.toInt(), skipped.toInt());
  }
  return archive;
}

}  // namespace mezzo::amp
