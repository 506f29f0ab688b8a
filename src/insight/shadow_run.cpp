#include "mezzo/insight_shadow.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "amp/model_state.h"
#include "core/scalar_type.h"
#include "insight/observed_step.h"
#include "insight/tensor_range.h"
#include "insight/trace.h"
#include "insight/unobserved.h"

namespace mezzo::insight {

namespace {

constexpr std::string_view kInShadow = "shadow_run";

double cast_seconds(const at::Tensor& tensor, at::ScalarType type) {
  const Unobserved unobserved;
  const auto start = std::chrono::steady_clock::now();
  static_cast<void>(tensor.detach().to(type));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool is_low_result(const std::vector<at::Tensor>& results) {
  return std::ranges::any_of(results,
                             [](const at::Tensor& result) { return is_low(result.scalar_type()); });
}

/// Gradients with the rounding that the level's derivative finds in them. Those that are beyond the
/// range of the type come as they are: the loss is the derivative's, which got no better ones.
std::vector<at::Tensor> as_arrived(const std::vector<at::Tensor>& gradients,
                                   const std::vector<at::Tensor>& results) {
  const Unobserved unobserved;
  std::vector<at::Tensor> arrived = gradients;
  for (std::size_t i = 0; i < std::min(arrived.size(), results.size()); ++i) {
    const at::ScalarType type = results[i].scalar_type();
    if (!arrived[i].defined() || !is_low(type)) continue;
    const at::Tensor rounded = arrived[i].to(type).to(at::kFloat);
    if (worst_error({rounded}, {arrived[i]}) <= row_of(type)->epsilon) arrived[i] = rounded;
  }
  return arrived;
}

/// An operator call at the level.
struct LevelCall {
  std::string overload;
  bool again = false;
  std::string module = {};
  std::vector<at::ScalarType> types = {};  // of the inputs
  std::vector<std::string> parameters = {};
  std::optional<CastRules> rules = {};
  int unit = -1;
  Repeat repeat = {};  // until the backward pass is over
  Arriving arriving = {};
  std::vector<at::Tensor> outputs = {}, gradients = {};
};

/// The run at the level: its results, and what was cast.
class LevelRun final : public CallListener {
 public:
  explicit LevelRun(const ModulePaths& paths) : paths_(paths), trace_(paths) {}

  void begins(const OperatorCall& call, bool again) override {
    Unit unit;
    unit.name = call.name();
    unit_ = trace_.add(std::move(unit));
    for (const at::Tensor& tensor : call.tensors()) trace_.read(unit_, tensor, false);
    computes_ = call.computes();
    to_cast_ = call.is_cast() && !call.inputs().empty() ? call.inputs().front() : at::Tensor();
    if (!computes_) return;
    LevelCall found{.overload = call.overload(), .again = again};
    found.types = call.types();
    for (const at::Tensor& tensor : call.inputs()) found.parameters.push_back(name_of(tensor));
    found.rules = current_rules();
    found.unit = unit_;
    found.repeat = call.repeat();
    calls_.push_back(std::move(found));
  }

  void ended(const std::vector<at::Tensor>& results) override {
    for (const at::Tensor& tensor : results) trace_.wrote(unit_, tensor, false);
    if (computes_) calls_.back().arriving = follow_results(results);
    if (to_cast_.defined() && !is_low(to_cast_.scalar_type()) && is_low_result(results)) {
      const at::ScalarType type = results.front().scalar_type();
      casts_.push_back({.name = trace_.unit(unit_).name,
                        .parameter = name_of(to_cast_),
                        .dtype = type,
                        .error = worst_error(results, {to_cast_}),
                        .seconds = cast_seconds(to_cast_, type)});
      units_of_casts_.push_back(unit_);
    }
    to_cast_ = at::Tensor();
  }

  /// After the backward pass: what every derivative gave, and where everything is.
  void finish() {
    for (LevelCall& call : calls_) {
      call.gradients = gradients_of(call.repeat, *call.arriving);
      for (const at::Tensor& output : call.repeat.outputs) call.outputs.push_back(output.detach());
      call.repeat.leaves.clear();
      call.repeat.outputs.clear();
      call.module = trace_.module_of(call.unit);
    }
    for (std::size_t i = 0; i < casts_.size(); ++i)
      casts_[i].module = trace_.module_of(units_of_casts_[i]);
  }

  const std::vector<LevelCall>& calls() const noexcept { return calls_; }
  std::vector<CastError>& casts() noexcept { return casts_; }

 private:
  std::string name_of(const at::Tensor& tensor) const {
    const NamedTensor* const named = paths_.find(memory_of(tensor));
    return named == nullptr ? std::string() : named->name;
  }

  const ModulePaths& paths_;
  Trace trace_;
  int unit_ = -1;
  bool computes_ = false;
  at::Tensor to_cast_;
  std::vector<LevelCall> calls_;
  std::vector<CastError> casts_;
  std::vector<int> units_of_casts_;
};

/// The run in float: beside each operator what the level would have made of the same inputs.
class FloatRun final : public CallListener {
 public:
  FloatRun(const std::vector<LevelCall>& level, std::vector<CastError>& casts)
      : level_(level), casts_(casts) {}

  void begins(const OperatorCall& call, bool again) override {
    open_ = call.computes() ? partner_of(call, again) : -1;
    if (open_ < 0) return;
    const LevelCall& partner = level_[static_cast<std::size_t>(open_)];
    Pair pair{.level = &partner, .name = call.name(), .exact = call.repeat()};
    if (!pair.exact.ran || !partner.repeat.ran) return;
    if (is_low_result(partner.outputs)) {
      pair.low = call.repeat({.types = partner.types}, partner.rules);
      pair.same = call.repeat({.held = held_by(partner)});
      look_at_casts(call, pair);
    }
    pairs_.push_back(std::move(pair));
    follows_ = true;
  }

  void ended(const std::vector<at::Tensor>& results) override {
    if (follows_) pairs_.back().arriving = follow_results(results);
    follows_ = false;
  }

  /// After the backward pass.
  std::vector<OperatorError> errors() const {
    std::vector<OperatorError> all;
    for (const Pair& pair : pairs_) {
      const LevelCall& level = *pair.level;
      OperatorError error{.name = pair.name, .module = level.module};
      if (!level.outputs.empty()) error.dtype = level.outputs.front().scalar_type();
      const bool is_low_here = is_low_result(level.outputs);
      if (!level.again && !pair.exact.outputs.empty()) {
        const Repeat& same = pair.same.ran ? pair.same : pair.exact;
        error.own = is_low_here ? worst_error(pair.low.outputs, same.outputs) : 0;
        error.accumulated = worst_error(level.outputs, pair.exact.outputs);
        all.push_back(error);
      }
      const std::vector<at::Tensor> exact = gradients_of(pair.exact, *pair.arriving);
      if (exact.empty() || level.gradients.empty()) continue;
      error.backward = true;
      error.own = is_low_here ? own_backward(pair, exact) : 0;
      error.accumulated = worst_error(level.gradients, exact);
      all.push_back(error);
    }
    return all;
  }

 private:
  struct Pair {
    const LevelCall* level;
    std::string name;
    Repeat exact;
    Repeat low = {}, same = {};  // as the level does, and in float on the same rounded inputs
    Arriving arriving = {};
  };

  /// The types that round the inputs before the level's call gets them. Weights have no operator
  /// before them, and casts that the level makes for the call are its own.
  static std::vector<at::ScalarType> held_by(const LevelCall& level) {
    std::vector<at::ScalarType> held = level.types;
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!level.parameters[i].empty()) held[i] = at::kFloat;
    }
    return held;
  }

  /// `exact`: the gradients in float.
  static double own_backward(const Pair& pair, const std::vector<at::Tensor>& exact) {
    if (!pair.same.ran) return worst_error(gradients_of(pair.low, *pair.arriving), exact);
    const std::vector<at::Tensor> arrived = as_arrived(*pair.arriving, pair.level->outputs);
    return worst_error(gradients_of(pair.low, arrived), gradients_of(pair.same, arrived));
  }

  /// The same call of the level's run, which may have some that this one lacks.
  int partner_of(const OperatorCall& call, bool again) {
    constexpr std::size_t kMostAhead = 16;
    for (std::size_t i = next_; i < std::min(level_.size(), next_ + kMostAhead); ++i) {
      const LevelCall& other = level_[i];
      if (other.overload != call.overload() || other.again != again ||
          other.types.size() != call.inputs().size())
        continue;
      next_ = i + 1;
      return static_cast<int>(i);
    }
    return -1;
  }

  /// The effect of each input's cast on the result by itself.
  void look_at_casts(const OperatorCall& call, const Pair& pair) {
    const LevelCall& level = *pair.level;
    if (level.again) return;
    const at::ScalarType low = level.outputs.front().scalar_type();
    for (std::size_t i = 0; i < level.types.size(); ++i) {
      const bool by_level = level.types[i] == at::kFloat;
      const bool weight = is_low(level.types[i]) && !level.parameters[i].empty();
      if (!by_level && !weight) continue;
      const int place = static_cast<int>(i);
      const Repeat rounded = call.repeat(
          {.types = std::vector<at::ScalarType>(level.types.size(), low), .rounded = place}, {},
          /*records=*/false);
      if (!rounded.ran) continue;
      casts_.push_back({.name = pair.name,
                        .module = level.module,
                        .parameter = level.parameters[i],
                        .input = place,
                        .dtype = low,
                        .error = worst_error(rounded.outputs, pair.exact.outputs),
                        .seconds = cast_seconds(call.inputs()[i], low)});
    }
  }

  const std::vector<LevelCall>& level_;
  std::vector<CastError>& casts_;
  std::size_t next_ = 0;
  int open_ = -1;
  bool follows_ = false;
  std::vector<Pair> pairs_;
};

}  // namespace

ShadowRun detail::shadow(const Subject& subject, const std::function<at::Tensor()>& loss) {
  if (subject.models.empty()) raise<ConfigError>(kInShadow, "got no model");
  if (!loss) raise<ConfigError>(kInShadow, "got no function that computes the loss");
  Networks networks;
  mezzo::amp::detail::Session& session = subject.models.front()->session();
  for (const auto& given : subject.models) {
    for (const auto& model : given->session().models()) {
      if (std::ranges::find(networks.models, model.get()) != networks.models.end()) continue;
      networks.models.push_back(model.get());
      networks.modules.push_back(&model->module());
    }
  }
  ShadowRun::Found found;
  found.level = session.plan().properties.opt_level;
  if (session.enabled()) found.loss_scale = session.scaler(0, kInShadow).state().scale;
  const ModulePaths paths(networks.modules);
  LevelRun level(paths);
  observe_step(networks, {}, loss, found.loss_scale, kInShadow, level);
  level.finish();
  FloatRun in_float(level.calls(), level.casts());
  observe_step(networks, {.all_float = true}, loss, found.loss_scale, kInShadow, in_float);
  found.operators = in_float.errors();
  found.casts = std::move(level.casts());
  std::ranges::stable_sort(found.operators, [](const OperatorError& a, const OperatorError& b) {
    const std::pair first(a.own, a.accumulated), second(b.own, b.accumulated);
    return first != second ? first > second : !a.backward && b.backward;
  });
  std::ranges::stable_sort(found.casts, std::ranges::greater(), &CastError::error);
  return ShadowRun(std::move(found));
}

}  // namespace mezzo::insight
