#include "mezzo/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "amp/model_state.h"
#include "amp/model_values.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/weight_average.h"
#include "core/raise.h"

namespace mezzo {
namespace amp::detail {
namespace {

constexpr std::string_view kInEma = "ema";

/// The averaged value of a parameter: its master's, if it has one.
at::Tensor source_of(Session& session, const at::Tensor& parameter) {
  const Weight* weight = session.weights().find(parameter);
  const bool has_master = weight != nullptr && weight->master.defined();
  return has_master ? master_value(*weight) : parameter.detach();
}

}  // namespace

WeightAverage::WeightAverage(ModelHandle model, double decay, amp::EmaOptions options)
    : model_(std::move(model)), decay_(decay), options_(options) {
  if (!(decay >= 0 && decay <= 1))
    raise<ConfigError>(kInEma, "the decay is ", decay, "; expected 0 to 1, such as 0.999");
  session().weights().absorb();
  for (const auto& item : module().named_parameters()) {
    if (item.value().defined() && item.value().is_floating_point())
      averages_.insert(item.key(), float_value(session(), item.value()));
  }
  seen_ = count_steps();
}

Session& WeightAverage::session() const {
  return model_.state()->session();
}

torch::nn::Module& WeightAverage::module() const {
  return model_.state()->module();
}

WeightAverage::Steps WeightAverage::count_steps() const {
  WeightSet mine;
  for (const at::Tensor& parameter : module().parameters())
    mine.insert(parameter.unsafeGetTensorImpl());
  Steps steps;
  for (const auto& optimizer : session().optimizers()) {
    const bool owns = std::ranges::any_of(optimizer->slots().all(), [&](const Slot& slot) {
      return mine.contains(slot.weight.unsafeGetTensorImpl());
    });
    if (!owns && session().enabled()) continue;
    steps.made += optimizer->steps().steps_made();
    steps.not_made += optimizer->steps().steps_skipped() + optimizer->steps().empty_steps();
  }
  return steps;
}

/// The host decides whether there was a step, and how fast averages move at first.
void WeightAverage::refuse_in_capture() const {
  for (const auto& optimizer : session().optimizers()) {
    if (optimizer->slots().capture() == 0) continue;
    raise(kInEma,
          "update() while a graph is captured, of whose replays the averages would not know: call "
          "it after each replay");
  }
}

bool WeightAverage::update() {
  if (is_applied())
    raise(kInEma, "update() while the averages are the model's weights; call restore() first");
  refuse_in_capture();
  const Steps now = count_steps();
  const Steps before = std::exchange(seen_, now);
  if (now.not_made > before.not_made && now.made == before.made) return false;

  const at::NoGradGuard no_grad;
  session().weights().absorb();
  const auto n = static_cast<double>(updates_);
  const double decay = options_.warmup ? std::min(decay_, (1 + n) / (10 + n)) : decay_;
  std::vector<at::Tensor> averages;
  std::vector<at::Tensor> values;
  for (const auto& item : module().named_parameters()) {
    at::Tensor* average = averages_.find(item.key());
    if (average == nullptr) {
      // A parameter that came since begins with its value.
      if (item.value().defined() && item.value().is_floating_point())
        averages_.insert(item.key(), float_value(session(), item.value()));
      continue;
    }
    const at::Tensor source = source_of(session(), item.value());
    *average = average->to(source.device());
    averages.push_back(*average);
    values.push_back(source.to(average->scalar_type()));
  }
  if (!averages.empty()) {
    at::_foreach_mul_(averages, decay);
    at::_foreach_add_(averages, values, 1 - decay);
  }
  ++updates_;
  return true;
}

void WeightAverage::apply() {
  if (is_applied())
    raise(kInEma, "apply() while the averages are the model's weights already; restore() first");
  session().weights().absorb();
  Values replaced;
  for (const auto& item : module().named_parameters()) {
    if (averages_.contains(item.key()))
      replaced.insert(item.key(), source_of(session(), item.value()).clone());
  }
  assign_values(session(), module(), averages_, /*strict=*/false);
  replaced_ = std::move(replaced);
}

void WeightAverage::restore() {
  if (!is_applied()) raise(kInEma, "restore() without apply()");
  assign_values(session(), module(), *replaced_, /*strict=*/false);
  replaced_.reset();
}

void WeightAverage::tell_failure(const std::string& what) const {
  session().say("mezzo: the weights beside averages could not be given back: " + what);
}

void WeightAverage::save(const std::string& prefix, SafetensorsFile& file) const {
  if (is_applied()) {
    raise(kInEma,
          "the averages are the model's weights at the moment; restore() before the training is "
          "saved or loaded");
  }
  for (const auto& item : averages_) file.tensors.insert(prefix + item.key(), item.value());
  file.metadata[prefix + "updates"] = std::to_string(updates_);
}

void WeightAverage::check(const std::string& prefix, const SafetensorsFile& file,
                          const std::string& path) const {
  if (is_applied()) {
    raise(kInEma,
          "the averages are the model's weights at the moment; restore() before the training is "
          "saved or loaded");
  }
  if (!file.metadata.contains(prefix + "updates")) {
    raise(kInEma, "'", path,
          "' holds no averages for this place of CheckpointOptions::averages; give those that "
          "were saved, in their order");
  }
  for (const auto& item : averages_) {
    const at::Tensor* saved = file.tensors.find(prefix + item.key());
    if (saved == nullptr || saved->sizes() != item.value().sizes()) {
      raise(kInEma, "'", path, "' holds no average of '", item.key(), "' with shape ",
            item.value().sizes());
    }
  }
}

void WeightAverage::load(const std::string& prefix, const SafetensorsFile& file) {
  const at::NoGradGuard no_grad;
  for (auto& item : averages_) item.value().copy_(file.tensors[prefix + item.key()]);
  updates_ = std::strtoll(file.metadata.at(prefix + "updates").c_str(), nullptr, 10);
  seen_ = count_steps();
}

}  // namespace amp::detail

namespace amp {

Ema::Ema(const detail::ModelHandle& model, double decay, EmaOptions options)
    : average_(std::make_shared<detail::WeightAverage>(model, decay, options)) {}

bool Ema::update() {
  return average_->update();
}

std::int64_t Ema::updates() const {
  return average_->updates();
}

void Ema::apply() {
  average_->apply();
}

void Ema::restore() {
  average_->restore();
}

bool Ema::is_applied() const {
  return average_->is_applied();
}

torch::OrderedDict<std::string, at::Tensor> Ema::averages() const {
  return average_->averages();
}

Ema::Swapped::Swapped(Ema& ema) : average_(ema.shared()) {
  average_->apply();
}

Ema::Swapped::~Swapped() {
  try {
    if (average_->is_applied()) average_->restore();
  } catch (const std::exception& error) {
    // A destructor must not throw, and the network was applied to a moment ago.
    average_->tell_failure(error.what());
  }
}

}  // namespace amp
}  // namespace mezzo
