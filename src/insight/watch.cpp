#include "mezzo/insight_watch.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "amp/model_state.h"
#include "amp/optimizer_state.h"
#include "core/autograd_node.h"
#include "core/scalar_type.h"
#include "insight/tally.h"
#include "insight/unobserved.h"

namespace mezzo::insight {

namespace {

constexpr std::string_view kInWatch = "watch";

const DTypeRow& type_row(at::ScalarType type) {
  const DTypeRow* const row = row_of(type);
  return row != nullptr && row->is_float ? *row : row_of(DType::kFloat32);
}

/// A parameter of a network, and what the optimizer steps in its place.
struct WatchedPlace {
  std::string module;
  std::string parameter;
  at::Tensor weight;
  at::Tensor stepped;
  const DTypeRow* range = nullptr;  // of the type in which the network computes with it
};

/// A gradient of the last backward pass; the hook that fills it may outlive the watch.
struct FlowedGradient {
  PendingTally tally;
};

/// Behind the node that adds a gradient up: it sees what autograd delivers.
class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(std::shared_ptr<FlowedGradient> flowed, const DTypeRow& range)
      : flowed_(std::move(flowed)), range_(range) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& results,
      const torch::autograd::variable_list& gradients) override {
    if (!gradients.empty() && gradients.front().defined()) {
      const Unobserved unobserved;
      flowed_->tally = PendingTally(gradients.front(), range_);
    }
    return results;
  }

 private:
  std::shared_ptr<FlowedGradient> flowed_;
  const DTypeRow& range_;
};

/// A place while its next step is watched.
class WatchedParameter {
 public:
  explicit WatchedParameter(WatchedPlace place)
      : place_(std::move(place)),
        before_(place_.stepped.detach().clone()),
        flowed_(std::make_shared<FlowedGradient>()),
        accumulator_(torch::autograd::impl::grad_accumulator(place_.weight)),
        hook_(accumulator_->add_post_hook(std::make_unique<GradientHook>(flowed_, *place_.range))) {
  }
  ~WatchedParameter() {
    if (accumulator_ != nullptr) accumulator_->del_post_hook(hook_);
  }
  WatchedParameter(WatchedParameter&&) noexcept = default;
  WatchedParameter(const WatchedParameter&) = delete;
  WatchedParameter& operator=(const WatchedParameter&) = delete;

  const WatchedPlace& place() const noexcept { return place_; }
  const at::Tensor& before() const noexcept { return before_; }
  Tally gradients() const { return flowed_->tally.read(); }

 private:
  WatchedPlace place_;
  at::Tensor before_;
  std::shared_ptr<FlowedGradient> flowed_;
  NodePointer accumulator_;
  std::uintptr_t hook_;
};

/// A parameter, or all parameters of a module, after the step.
struct WatchedTallies {
  Tally weights = {}, gradients = {}, updates = {};
  double before = 0;  // sum of the squares of what was moved
  const DTypeRow* range = nullptr;
  const DTypeRow* stepped = nullptr;

  void add(const WatchedTallies& other) {
    if (range == nullptr) *this = WatchedTallies{.range = other.range, .stepped = other.stepped};
    weights.add(other.weights);
    gradients.add(other.gradients);
    updates.add(other.updates);
    before += other.before;
  }
  report::Watched row(const std::string& module, const std::string& parameter) const {
    return {.module = module,
            .parameter = parameter,
            .weights = weights.magnitudes(*range),
            .gradients = gradients.magnitudes(*range),
            .updates = updates.magnitudes(*stepped),
            .update_ratio = std::sqrt(updates.squares / before)};
  }
};

at::Tensor in_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

}  // namespace

/// The watch behind the handle.
class detail::Watching {
 public:
  Watching(Subject subject, report::Sink& sink, WatchOptions options)
      : subject_(std::move(subject)), sink_(sink), every_(options.every) {
    if (every_ < 1) {
      raise<ConfigError>(kInWatch, "got every = ", every_,
                         "; expected 1 (each step) or more, such as 100");
    }
    if (subject_.optimizers.size() != 1)
      raise<ConfigError>(kInWatch, "got ", subject_.optimizers.size(), " optimizers; expected one");
    if (places().empty()) {
      raise<ConfigError>(kInWatch,
                         "the optimizer steps no trainable parameter of the model; give both as "
                         "one call of initialize returned them");
    }
    prepare();
  }

  void step() {
    if (optimizer().slots().capture() != 0) {
      raise(kInWatch,
            "step() while a graph is captured, whose replays no hook sees: watch steps that are "
            "made outside of the graph");
    }
    ++steps_;
    if (!parameters_.empty()) report();
    prepare();
  }

 private:
  std::vector<WatchedPlace> places() const;
  void prepare();
  void report();
  WatchedTallies tallies_of(
      const WatchedParameter& parameter,
      const std::unordered_map<const c10::TensorImpl*, at::Tensor>& now) const;
  /// The tensor that the optimizer steps, by weight.
  std::unordered_map<const c10::TensorImpl*, at::Tensor> stepped() const;
  mezzo::amp::detail::OptimizerState& optimizer() const {
    return *subject_.optimizers.front().shared();
  }

  Subject subject_;
  report::Sink& sink_;
  std::int64_t every_;
  std::int64_t steps_ = 0;
  std::vector<WatchedParameter> parameters_;  // of a step that is watched
};

std::unordered_map<const c10::TensorImpl*, at::Tensor> detail::Watching::stepped() const {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> found;
  if (optimizer().session().enabled()) {
    for (const auto& slot : optimizer().slots().all())
      found.emplace(slot.weight.unsafeGetTensorImpl(),
                    slot.has_master() ? amp::detail::master_value(*slot.entry) : slot.master);
  } else {
    for (const auto& group : optimizer().inner().param_groups()) {
      for (const at::Tensor& parameter : group.params())
        found.emplace(parameter.unsafeGetTensorImpl(), parameter);
    }
  }
  return found;
}

std::vector<WatchedPlace> detail::Watching::places() const {
  const auto masters = stepped();
  std::vector<WatchedPlace> all;
  for (std::size_t i = 0; i < subject_.models.size(); ++i) {
    const mezzo::amp::detail::ModelState& model = *subject_.models[i];
    const auto& policy = model.operator_policy();
    const bool casts = model.session().enabled() && policy.has_value();
    const std::string suffix =
        subject_.models.size() == 1 ? "" : " of network " + std::to_string(i);
    for (const auto& item : model.module().named_parameters()) {
      const at::Tensor& weight = item.value();
      const auto found = masters.find(weight.unsafeGetTensorImpl());
      if (found == masters.end() || !weight.requires_grad()) continue;
      const std::size_t dot = item.key().rfind('.');
      const std::string module = dot == std::string::npos ? item.key() : item.key().substr(0, dot);
      all.push_back({module + suffix, item.key() + suffix, weight, found->second,
                     &type_row(casts ? policy->low() : weight.scalar_type())});
    }
  }
  return all;
}

void detail::Watching::prepare() {
  if ((steps_ + 1) % every_ != 0) return;
  const at::NoGradGuard no_grad;
  const Unobserved unobserved;
  for (WatchedPlace& place : places()) parameters_.emplace_back(std::move(place));
}

WatchedTallies detail::Watching::tallies_of(
    const WatchedParameter& parameter,
    const std::unordered_map<const c10::TensorImpl*, at::Tensor>& now) const {
  const WatchedPlace& place = parameter.place();
  WatchedTallies tallies{.range = place.range, .stepped = &type_row(place.stepped.scalar_type())};
  tallies.weights = PendingTally(place.weight.detach(), *place.range).read();
  tallies.gradients = parameter.gradients();
  const auto found = now.find(place.weight.unsafeGetTensorImpl());
  const at::Tensor& before = parameter.before();
  // Loaded or moved to another device meanwhile: there is nothing to compare with.
  if (found == now.end() || found->second.sizes() != before.sizes() ||
      found->second.device() != before.device())
    return tallies;
  const at::Tensor moved = in_float(found->second.detach()).sub(in_float(before));
  tallies.updates = PendingTally(moved, *tallies.stepped).read();
  tallies.before = PendingTally(before, *tallies.stepped).read().squares;
  return tallies;
}

void detail::Watching::report() {
  const std::vector<WatchedParameter> watched = std::exchange(parameters_, {});
  const at::NoGradGuard no_grad;
  const Unobserved unobserved;
  report::StepWatched event{.step = steps_};
  if (const auto& last = optimizer().steps().last()) {
    event.scale = last->scale_before.read();
    event.skipped = last->is_skipped();
  }
  const auto now = stepped();
  WatchedTallies module;
  std::vector<report::Watched> rows;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const WatchedPlace& place = watched[i].place();
    const WatchedTallies own = tallies_of(watched[i], now);
    module.add(own);
    rows.push_back(own.row(place.module, place.parameter));
    if (i + 1 < watched.size() && watched[i + 1].place().module == place.module) continue;
    event.rows.push_back(module.row(place.module, ""));
    event.rows.insert(event.rows.end(), rows.begin(), rows.end());
    module = {};
    rows.clear();
  }
  sink_.write(event);
}

Watch::Watch(std::unique_ptr<detail::Watching> watching) : watching_(std::move(watching)) {}
Watch::Watch(Watch&&) noexcept = default;
Watch& Watch::operator=(Watch&&) noexcept = default;
Watch::~Watch() = default;

void Watch::step() {
  if (watching_ == nullptr) raise<ConfigError>(kInWatch, "this handle was moved from");
  watching_->step();
}

Watch detail::start_watch(Subject subject, report::Sink& sink, WatchOptions options) {
  return Watch(std::make_unique<Watching>(std::move(subject), sink, options));
}

}  // namespace mezzo::insight
