#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/serialize/archive.h>

#include <sstream>

#include "amp/gradients.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/settle.h"
#include "core/raise.h"
#include "legacy/scale_rules.h"
#include "legacy/unscaled_gradients.h"
#include "mezzo/fp16_utils.h"
#include "mezzo/model_values.h"
#include "mezzo/optim.h"
#include "mezzo/scaled_loss.h"

namespace mezzo::fp16_utils {
namespace {

using mezzo::amp::detail::OptimizerState;
using mezzo::amp::detail::Session;
using mezzo::amp::detail::Slot;

constexpr std::string_view kInFp16Optimizer = "FP16_Optimizer";

constexpr const char* kDynamic = "dynamic_loss_scale";
constexpr const char* kScale = "loss_scale";
constexpr const char* kUnskipped = "unskipped";
constexpr const char* kStuck = "stuck_at_floor";
constexpr const char* kFactor = "scale_factor";
constexpr const char* kWindow = "scale_window";
constexpr const char* kOverflow = "overflow";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kMasters = "fp32_from_fp16";

/// A session of O2's scaling and masters around an optimizer alone: the network is the caller's.
std::shared_ptr<Session> session_of(torch::optim::Optimizer& optimizer,
                                    const FP16OptimizerOptions& options) {
  const bool dynamic = options.dynamic_loss_scale || options.dynamic_loss_args;
  amp::Options wanted{.opt_level = "O2", .cast_model_type = at::ScalarType::Undefined};
  wanted.loss_scale =
      dynamic ? amp::LossScale("dynamic") : amp::LossScale(options.static_loss_scale);
  // As documented: a static scale of 1 steps by what there is.
  wanted.check_finite = dynamic || options.static_loss_scale != 1;
  wanted.verbosity = options.verbose ? 1 : 0;
  mezzo::amp::detail::Plan plan = mezzo::amp::detail::resolve(wanted);
  if (dynamic) {
    const DynamicLossArgs args = options.dynamic_loss_args.value_or(DynamicLossArgs{});
    plan.scale_rules = scale_rules(kInFp16Optimizer, args.scale_factor, args.scale_window);
    plan.first_scale = checked_first_scale(kInFp16Optimizer, args.init_scale, plan.scale_rules);
  }
  auto session = std::make_shared<Session>(std::move(wanted), std::move(plan));
  session->adopt({}, {{&optimizer, {}}});
  return session;
}

std::string describe(OptimizerState& state) {
  std::ostringstream text;
  text << "mezzo: FP16_Optimizer steps";
  std::size_t place = 0;
  for (std::size_t group = 0; group < state.inner().param_groups().size(); ++group) {
    for (std::size_t i = 0; i < state.inner().param_groups()[group].params().size(); ++i) {
      const Slot& slot = state.slots().at(place++);
      text << "\n  group " << group << ": " << slot.weight.scalar_type() << ' '
           << slot.weight.sizes() << (slot.has_master() ? " by a float master" : "");
    }
  }
  return text.str();
}

template <typename T, typename Read>
T entry(torch::serialize::InputArchive& archive, const std::string& key, Read read) {
  c10::IValue value;
  if (!archive.try_read(key, value))
    raise(kInFp16Optimizer, "the archive is not of an FP16_Optimizer: it has no '", key, "'");
  return (value.*read)();
}

torch::serialize::InputArchive part(torch::serialize::InputArchive& archive,
                                    const std::string& key) {
  torch::serialize::InputArchive nested;
  if (!archive.try_read(key, nested))
    raise(kInFp16Optimizer, "the archive is not of an FP16_Optimizer: it has no '", key, "'");
  return nested;
}

struct SavedScale {
  scaling::ScaleRules rules;
  scaling::ScaleState state;
};

/// The scale in the archive, for an optimizer whose scale moves by `rules` now.
SavedScale read_scale(torch::serialize::InputArchive& archive, const scaling::ScaleRules& rules) {
  using c10::IValue;
  SavedScale saved{rules, {}};
  const bool dynamic = entry<bool>(archive, kDynamic, &IValue::toBool);
  if (dynamic != rules.dynamic) {
    raise(kInFp16Optimizer, "the archive is of an optimizer with a ",
          dynamic ? "dynamic" : "static", " scale, this one's is ",
          rules.dynamic ? "dynamic" : "static", "; construct it with the same dynamic_loss_scale");
  }
  saved.state = {checked_scale(kInFp16Optimizer, entry<double>(archive, kScale, &IValue::toDouble)),
                 entry<std::int64_t>(archive, kUnskipped, &IValue::toInt),
                 entry<std::int64_t>(archive, kStuck, &IValue::toInt)};
  if (dynamic) {
    saved.rules = scale_rules(kInFp16Optimizer, entry<double>(archive, kFactor, &IValue::toDouble),
                              entry<std::int64_t>(archive, kWindow, &IValue::toInt));
  }
  return saved;
}

std::vector<at::Tensor> read_masters(torch::serialize::InputArchive& archive,
                                     const std::vector<Slot*>& slots) {
  auto saved = part(archive, kMasters);
  const auto count = entry<std::int64_t>(saved, "size", &c10::IValue::toInt);
  if (count != static_cast<std::int64_t>(slots.size()))
    raise(kInFp16Optimizer, "the archive has ", count, " masters, this optimizer ", slots.size());
  std::vector<at::Tensor> masters(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!saved.try_read(std::to_string(i), masters[i]))
      raise(kInFp16Optimizer, "the archive has no master ", i);
    if (masters[i].sizes() == slots[i]->master.sizes()) continue;
    raise(kInFp16Optimizer, "master ", i, " has shape ", masters[i].sizes(),
          " in the archive, here ", slots[i]->master.sizes());
  }
  return masters;
}

}  // namespace

class FP16_Optimizer::Impl {
 public:
  Impl(torch::optim::Optimizer& optimizer, const FP16OptimizerOptions& options)
      : session(session_of(optimizer, options)),
        handle(std::shared_ptr<OptimizerState>(session, session->optimizers().front().get())) {
    session->say(describe(state()));
    unscaled.note(state().slots().all());
  }

  OptimizerState& state() const { return *session->optimizers().front(); }
  scaling::LossScaler& scaler() const { return session->scaler(0, kInFp16Optimizer); }

  bool has_plain_gradients() const { return state().gradients().missed_by_master() != nullptr; }

  /// Gradients of an unknown backward pass in float weights; without a scale they need
  /// nothing.
  bool has_new_float_gradients() const {
    return !scaler().is_one() && unscaled.any_new(state().slots().all());
  }

  bool has_gradients() const {
    for (const Slot& slot : state().slots().all()) {
      if (slot.master.grad().defined() || slot.weight.grad().defined()) return true;
    }
    return false;
  }

  /// Scaled gradients must have gone to the masters. Between an update and its step the caller may
  /// change them.
  void check_updated(std::string_view what) const {
    const bool may_change = updated && !stepped;
    if (state().scope().still_scaled() || has_plain_gradients() ||
        (!may_change && has_new_float_gradients())) {
      raise(kInFp16Optimizer,
            "gradients are still scaled; call update_master_grads(), or backward(loss) "
            "without false, before ",
            what);
    }
  }

  void note_update() {
    updated = true;
    stepped = false;
    found_inf = state().scope().progress().found_inf;
    unscaled.note(state().slots().all());
  }

  void note_step(const amp::StepResult& result) {
    stepped = true;
    if (result.skipped()) updated = false;
    unscaled.note(state().slots().all());
  }

  void clear() {
    updated = false;
    found_inf.reset();
    unscaled.note(state().slots().all());
  }

  bool overflowed() const { return found_inf.defined() && found_inf.item<float>() != 0; }

  std::vector<Slot*> with_masters() const {
    std::vector<Slot*> slots;
    for (Slot& slot : state().slots().all()) {
      if (slot.has_master()) slots.push_back(&slot);
    }
    return slots;
  }

  std::shared_ptr<Session> session;
  amp::Optimizer handle;
  bool updated = false;  // gradients of ours are in the masters
  bool stepped = false;  // ... and a step was taken by them
  UnscaledGradients unscaled;
  at::Tensor found_inf;  // what the updates found
};

FP16_Optimizer::FP16_Optimizer(torch::optim::Optimizer& optimizer, FP16OptimizerOptions options)
    : impl_(std::make_unique<Impl>(optimizer, options)) {}
FP16_Optimizer::FP16_Optimizer(FP16_Optimizer&&) noexcept = default;
FP16_Optimizer& FP16_Optimizer::operator=(FP16_Optimizer&&) noexcept = default;
FP16_Optimizer::~FP16_Optimizer() = default;

void FP16_Optimizer::zero_grad(bool set_to_none) {
  impl_->handle.zero_grad(set_to_none);
  if (!set_to_none) impl_->state().gradients().leave_zeros_with_weights();
  impl_->clear();
}

void FP16_Optimizer::backward(const at::Tensor& loss, bool update_master_grads, bool retain_graph) {
  amp::ScaledLoss scaled =
      amp::scale_loss(loss, impl_->handle, {.delay_unscale = !update_master_grads});
  scaled.backward({}, retain_graph);
  scaled.close();
  if (update_master_grads) impl_->note_update();
}

void FP16_Optimizer::update_master_grads() {
  OptimizerState& state = impl_->state();
  if (state.scope().still_scaled()) {
    state.steps().settle_deferred();
    impl_->note_update();
    return;
  }
  state.slots().sync();
  if (impl_->updated) {
    if (!impl_->has_plain_gradients() && !impl_->has_new_float_gradients()) return;
    if (impl_->unscaled.any_left(state.slots().all())) {
      raise(kInFp16Optimizer,
            "a backward pass outside of backward() added to gradients that were unscaled already; "
            "call zero_grad() of this object before it, or backward(loss) in its place");
    }
    state.scope().forget_overflow();  // cleared behind our back
  }
  // A backward pass of the caller's own: all that is there carries the scale.
  mezzo::amp::detail::settle({&state}, *impl_->session, 0, /*delay_overflow_check=*/false);
  impl_->note_update();
}

void FP16_Optimizer::step() {
  impl_->check_updated("step()");
  if (!impl_->state().scope().progress().had_backward && !impl_->has_gradients())
    raise(kInFp16Optimizer, "no gradients yet; call backward(loss) before step()");
  impl_->note_step(impl_->handle.step());
}

at::Tensor FP16_Optimizer::step(torch::optim::Optimizer::LossClosure closure) {
  if (!closure) {
    step();
    return {};
  }
  at::Tensor first;
  bool is_clean = false;
  const auto evaluate = [&] {
    at::Tensor loss = closure();
    impl_->check_updated("the closure returns");
    if (!is_clean) first = loss;
    // Overflowed gradients are dropped before the closure runs again.
    if (impl_->overflowed()) {
      impl_->updated = false;
    } else {
      is_clean = true;
    }
    return loss;
  };
  impl_->note_step(impl_->handle.step(evaluate));
  return first;
}

double FP16_Optimizer::clip_master_grads(double max_norm, double norm_type) {
  impl_->check_updated("clip_master_grads()");
  if (overflow()) return -1;
  const at::Tensor norm =
      optim::clip_grad_norm_(amp::master_params(impl_->handle), max_norm, norm_type);
  impl_->unscaled.note(impl_->state().slots().all());
  return norm.item<double>();
}

std::optional<std::vector<std::vector<at::Tensor>>> FP16_Optimizer::inspect_master_grad_data() {
  if (overflow()) {
    impl_->session->say(
        "mezzo: FP16_Optimizer: a gradient was not finite, there is nothing to "
        "inspect; the step will be skipped");
    return std::nullopt;
  }
  std::vector<std::vector<at::Tensor>> groups;
  for (const auto& group : param_groups()) {
    auto& gradients = groups.emplace_back();
    for (const at::Tensor& master : group.params()) {
      gradients.push_back(master.grad().defined() ? master.grad().detach() : at::Tensor());
    }
  }
  return groups;
}

bool FP16_Optimizer::overflow() const {
  return impl_->overflowed();
}

double FP16_Optimizer::loss_scale() const {
  return impl_->scaler().state().scale;
}

void FP16_Optimizer::set_loss_scale(double scale) {
  scaling::ScaleState state = impl_->scaler().state();
  state.scale = checked_scale(kInFp16Optimizer, scale);
  impl_->scaler().set_state(state);
}

std::vector<torch::optim::OptimizerParamGroup>& FP16_Optimizer::param_groups() {
  return impl_->handle.param_groups();
}

void FP16_Optimizer::save(torch::serialize::OutputArchive& archive) const {
  const scaling::ScaleState scale = impl_->scaler().state();
  const scaling::ScaleRules& rules = impl_->scaler().rules();
  impl_->session->weights().absorb();
  archive.write(kDynamic, c10::IValue(rules.dynamic));
  archive.write(kScale, c10::IValue(scale.scale));
  archive.write(kUnskipped, c10::IValue(scale.unskipped));
  archive.write(kStuck, c10::IValue(scale.stuck_at_floor));
  archive.write(kFactor, c10::IValue(rules.growth));
  archive.write(kWindow, c10::IValue(rules.growth_interval));
  archive.write(kOverflow, c10::IValue(overflow()));

  torch::serialize::OutputArchive optimizer(archive.compilation_unit());
  optimizer << impl_->handle;
  archive.write(kOptimizer, optimizer);

  torch::serialize::OutputArchive masters(archive.compilation_unit());
  const std::vector<Slot*> slots = impl_->with_masters();
  masters.write("size", c10::IValue(static_cast<std::int64_t>(slots.size())));
  for (std::size_t i = 0; i < slots.size(); ++i)
    masters.write(std::to_string(i), slots[i]->master.detach());
  archive.write(kMasters, masters);
}

void FP16_Optimizer::load(torch::serialize::InputArchive& archive) {
  const SavedScale saved = read_scale(archive, impl_->scaler().rules());
  const auto overflowed = entry<bool>(archive, kOverflow, &c10::IValue::toBool);
  impl_->state().slots().sync();
  const std::vector<Slot*> slots = impl_->with_masters();
  const std::vector<at::Tensor> masters = read_masters(archive, slots);
  auto optimizer = part(archive, kOptimizer);
  optimizer >> impl_->handle;

  // Nothing can fail any more.
  const at::NoGradGuard no_grad;
  std::vector<mezzo::amp::detail::Weight*> weights;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i]->master.copy_(masters[i]);
    weights.push_back(slots[i]->entry);
  }
  impl_->session->weights().publish(weights);
  const at::Device device = impl_->scaler().device();
  impl_->scaler() = scaling::LossScaler(saved.rules, saved.state.scale);
  impl_->scaler().to(device);
  impl_->scaler().set_state(saved.state);
  zero_grad(/*set_to_none=*/true);
  if (!overflowed) return;
  impl_->found_inf = at::full({}, 1, at::TensorOptions(device).dtype(at::kFloat));
  impl_->state().scope().judge(0, {impl_->found_inf, {}}, {saved.state.scale});
  // The step that follows has none of the gradients that overflowed.
  mezzo::amp::detail::OptimizerProgress progress = impl_->state().scope().progress();
  progress.had_backward = true;
  impl_->state().scope().set_progress(std::move(progress));
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const FP16_Optimizer& optimizer) {
  optimizer.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           FP16_Optimizer& optimizer) {
  optimizer.load(archive);
  return archive;
}

}  // namespace mezzo::fp16_utils
