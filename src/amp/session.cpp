#include "amp/session.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>

#include "amp/gradients.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/position_tables.h"
#include "casting/weights.h"
#include "core/raise.h"
#include "mezzo/messages.h"

namespace mezzo::amp::detail {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_set<const void*> objects;
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

std::vector<const void*> objects_of(const Claims::Modules& modules,
                                    const std::vector<OptimizerRef>& optimizers) {
  std::vector<const void*> objects;
  for (const auto& module : modules) objects.push_back(module.get());
  for (const OptimizerRef& ref : optimizers) objects.push_back(ref.inner);
  return objects;
}

void refuse_claimed(const std::unordered_set<const void*>& claimed,
                    const std::vector<const void*>& objects) {
  for (const void* object : objects) {
    if (claimed.contains(object)) {
      raise<ConfigError>(
          "initialize",
          "a network or optimizer is initialized already; each goes through initialize once, "
          "and again only when all handles of the first call are gone");
    }
  }
}

}  // namespace

Claims::~Claims() {
  const std::lock_guard lock(registry().mutex);
  for (const void* object : mine_) registry().objects.erase(object);
}

void Claims::check(const Modules& modules, const std::vector<OptimizerRef>& optimizers) {
  const std::lock_guard lock(registry().mutex);
  refuse_claimed(registry().objects, objects_of(modules, optimizers));
}

void Claims::claim(const Modules& modules, const std::vector<OptimizerRef>& optimizers) {
  std::vector<const void*> objects = objects_of(modules, optimizers);
  const std::lock_guard lock(registry().mutex);
  refuse_claimed(registry().objects, objects);
  registry().objects.insert(objects.begin(), objects.end());
  mine_ = std::move(objects);
}

Session::Session(amp::Options options, Plan plan)
    : options_(std::move(options)),
      plan_(std::move(plan)),
      skips_to_explain_(options_.explain_skips),
      kept_float_(options_.keep_float) {
  if (options_.enabled && plan_.check_finite) watch_.emplace();
}

Session::~Session() {
  try {
    for (const auto& optimizer : optimizers_) optimizer->plain_training().stop();
    shown_gradients_.hide();
    take_last_writes();
    for (const auto& optimizer : optimizers_) optimizer->restore();
    weights_.restore();
    for (const auto& model : models_) flatten_recurrent_weights(model->module());
  } catch (const std::exception& error) {
    // A destructor must not throw; a message names what could not be given back.
    say(std::string("mezzo: weights could not be given back: ") + error.what());
  }
}

void Session::take_last_writes() noexcept {
  try {
    weights_.absorb_all_values();
  } catch (const std::exception& error) {
    say(std::string("mezzo: values that were written into weights are lost: ") + error.what());
  }
}

void Session::exclude_old_interface() {
  if (enabled()) use_.emplace(InterfaceUse::kInitialize);
}

void Session::adopt(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                    std::vector<OptimizerRef> optimizers) {
  if (enabled()) claims_.claim(modules, optimizers);

  for (int i = 0; i < options_.num_losses; ++i)
    scalers_.emplace_back(plan_.scale_rules, plan_.first_scale);
  for (const OptimizerRef& ref : optimizers) {
    for (const auto& group : ref.inner->param_groups()) {
      for (const at::Tensor& parameter : group.params())
        stepped_.insert(parameter.unsafeGetTensorImpl());
    }
  }
  if (enabled()) {
    for (const auto& module : modules) convert(*module);
  }
  for (auto& module : modules)
    models_.push_back(std::make_unique<ModelState>(*this, std::move(module)));
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    optimizers_.push_back(
        std::make_unique<OptimizerState>(*this, std::move(optimizers[i]), static_cast<int>(i)));
    if (enabled()) optimizers_.back()->slots().sync();
  }
}

void Session::follow_program() {
  if (!enabled()) return;
  for (const auto& optimizer : optimizers_) {
    for (Slot& slot : optimizer->slots().all()) {
      if (!slot.has_master() || slot.master.grad().defined() || !has_gradient(slot.weight))
        continue;
      // From before `initialize`, with a weight that was low already.
      slot.master.mutable_grad() = take_gradient(slot.weight).to(at::kFloat);
    }
    if (plan_.masters) optimizer->plain_training().watch(*optimizer);
  }
  if (plan_.masters || scales_losses()) {
    for (const auto& model : models_) model->watch_stray_training();
  }
  shown_gradients_.begin(optimizers_);
}

void Session::take_writes() {
  publish_written_masters();
  doubt_written_casts();
  if (!weights_.absorb()) return;
  for (const auto& model : models_) casting::invalidate_casts(model->module().parameters());
  say_once("data write",
           "mezzo: low weights were written through data(), of which LibTorch tells nothing; their "
           "masters took the values over. Such writes are seen only where the first, middle or "
           "last value of a weight on a CPU changes: call invalidate_casts() after them");
}

void Session::publish_written_masters() {
  if (!plan_.masters) return;
  const std::lock_guard lock(publishing_);
  for (const auto& optimizer : optimizers_) optimizer->slots().publish_foreign_steps();
}

void Session::doubt_written_casts() {
  if (!enabled()) return;
  const std::lock_guard lock(publishing_);
  for (const auto& optimizer : optimizers_) optimizer->slots().doubt_written_casts();
}

bool Session::wants_master(const at::Tensor& tensor) const {
  return plan_.masters && tensor.requires_grad() && stepped_.contains(tensor.unsafeGetTensorImpl());
}

void Session::watch_low_tensors(const torch::nn::Module& module) {
  auto tensors = module.named_parameters();
  tensors.update(module.named_buffers());
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    if (!is_low(tensor) || weights_.find(tensor) != nullptr) continue;
    weights_.add({tensor, {}, tensor.scalar_type(), tensor.scalar_type(), item.key()});
  }
}

/// The tensors that stay float in a low network: those that the options name, and at the levels
/// that keep float masters the tables of positions.
std::unordered_set<const c10::TensorImpl*> Session::floats_of(const torch::nn::Module& module) {
  auto kept = kept_float_.in(module);
  if (!plan_.level->master_weights.value_or(false) || !is_low(*plan_.convert)) return kept;
  for (const auto& [name, table] : position_tables_in(module, *plan_.convert)) {
    if (!kept.insert(table.unsafeGetTensorImpl()).second) continue;
    say_once("table " + name, "mezzo: the buffer '" + name +
                                  "' keeps float: its values are positions, frequencies or angles, "
                                  "and rounded ones have other sines and cosines");
  }
  return kept;
}

void Session::convert(torch::nn::Module& module) {
  if (plan_.keep_types) watch_low_tensors(module);
  if (!plan_.convert) return;
  const at::NoGradGuard no_grad;
  const Conversion conversion{*plan_.convert, plan_.keep_batch_norms, plan_.convert_doubles,
                              floats_of(module)};
  for_each_to_convert(
      module, conversion, [&](const std::string& name, at::Tensor& tensor, at::ScalarType to) {
        if (weights_.find(tensor) != nullptr) return;
        Weight weight{tensor, {}, to, tensor.scalar_type(), name};
        if (is_low(to) && wants_master(tensor)) {
          // The float values stay where they are and become the master's; a part of a larger block
          // is copied.
          const bool owns_all = tensor.storage().nbytes() == tensor.nbytes();
          const at::Tensor values = owns_all ? tensor.variable_data() : tensor.detach().clone();
          weight.master = values.to(at::kFloat).detach().set_requires_grad(true);
        }
        const at::Tensor grad = std::exchange(tensor.mutable_grad(), at::Tensor());
        tensor.set_data(tensor.detach().to(to));
        if (grad.defined()) {
          const bool has_master = weight.master.defined();
          at::Tensor& owner = has_master ? weight.master : tensor;
          owner.mutable_grad() = grad.to(owner.scalar_type());
        }
        weights_.add(std::move(weight));
      });
  flatten_recurrent_weights(module);
  for (Weight* weight : weights_.all()) WeightTable::agree(*weight);
}

bool Session::defers_unscale() const {
  if (!options_.defer_unscale || optimizers_.size() == 1) return options_.defer_unscale;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& optimizer : optimizers_) {
    for (const Slot& slot : optimizer->slots().all()) {
      if (!seen.insert(slot.weight.unsafeGetTensorImpl()).second) return false;
    }
  }
  return true;
}

void Session::convert_new_weights() {
  for (const auto& optimizer : optimizers_) {
    for (const auto& group : optimizer->inner().param_groups()) {
      for (const at::Tensor& parameter : group.params())
        stepped_.insert(parameter.unsafeGetTensorImpl());
    }
  }
  weights_.absorb();
  for (const auto& model : models_) convert(model->module());
}

scaling::LossScaler& Session::scaler(int loss_id, std::string_view where) {
  if (loss_id < 0 || static_cast<std::size_t>(loss_id) >= scalers_.size()) {
    raise<ConfigError>(where, "loss_id is ", loss_id, ", but initialize was told of ",
                       scalers_.size(), scalers_.size() == 1 ? " loss" : " losses",
                       " (Options::num_losses)");
  }
  return scalers_[static_cast<std::size_t>(loss_id)];
}

std::optional<parallel::ProcessGroup> Session::deciding_ranks() const {
  return options_.overflow_group ? options_.overflow_group->group() : parallel::world_if_any();
}

std::string Session::name_of(const at::Tensor& weight) const {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    for (const auto& item : models_[i]->module().named_parameters()) {
      if (!item.value().is_same(weight)) continue;
      if (models_.size() == 1) return item.key();
      return item.key() + " of network " + std::to_string(i);
    }
  }
  std::ostringstream text;
  text << "a parameter of shape " << weight.sizes();
  if (!models_.empty()) text << " that no network of this initialize has";
  return text.str();
}

void Session::say(const std::string& text) const {
  if (!enabled() || options_.verbosity < 1) return;
  send_message(text);
}

void Session::say_once(const std::string& key, const std::string& text) {
  {
    const std::lock_guard lock(said_mutex_);
    if (!said_.insert(key).second) return;
  }
  say(text);
}

}  // namespace mezzo::amp::detail
