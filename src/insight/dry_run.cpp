#include "mezzo/insight_dry_run.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "amp/model_state.h"
#include "core/scalar_type.h"
#include "insight/dry_findings.h"
#include "insight/observed_step.h"
#include "insight/tensor_range.h"
#include "insight/trace.h"
#include "insight/unobserved.h"
#include "operators/operators.h"

namespace mezzo::insight {

using detail::DryCall;
using detail::DryFindings;
using detail::kMostRoundings;
using detail::kTargets;
using detail::TargetMeasure;

namespace {

constexpr std::string_view kInDryRun = "dry_run";
constexpr std::size_t kLowTargets = 2;  // those that a policy can be for come first

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    bytes += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  return bytes;
}

/// One range over several steps: extremes of all, positions of the largest.
void merge(TensorRange& into, const TensorRange& other) {
  if (largest_magnitude(other) > largest_magnitude(into)) into.largest_at = other.largest_at;
  if (into.not_finite_at.empty()) into.not_finite_at = other.not_finite_at;
  into.min = std::fmin(into.min, other.min);
  into.max = std::fmax(into.max, other.max);
  if (into.smallest == 0 || (other.smallest != 0 && other.smallest < into.smallest))
    into.smallest = other.smallest;
  into.zeros += other.zeros;
  into.nans += other.nans;
  into.infs += other.infs;
  into.sizes = other.sizes;
}

void merge(Operator& into, const Operator& other) {
  for (std::size_t i = 0; i < std::min(into.inputs.size(), other.inputs.size()); ++i)
    merge(into.inputs[i], other.inputs[i]);
  merge(into.output, other.output);
}

/// The same call of a later step.
void merge(DryCall& into, const DryCall& other) {
  merge(into.forward, other.forward);
  if (into.has_backward && other.has_backward) merge(into.backward, other.backward);
  into.seconds = std::min(into.seconds, other.seconds);
  for (std::size_t i = 0; i < kTargets.size(); ++i) {
    TargetMeasure& mine = into.targets[i];
    const TargetMeasure& theirs = other.targets[i];
    if (!mine.measured || !theirs.measured) continue;
    if (mine.feeders.empty()) mine.feeders = theirs.feeders;
    mine.fits = mine.fits && theirs.fits;
    mine.own = std::max(mine.own, theirs.own);
    mine.backward = std::max(mine.backward, theirs.backward);
    mine.seconds = std::min(mine.seconds, theirs.seconds);
  }
}

bool is_product(const OperatorCall& call) {
  const std::optional<Found> row = find(call.overload());
  return row && operators()[row->row].matrix;
}

/// Does it choose among values, as relu and pooling do, rather than compute new ones?
bool passes_on(const Policy& policy, const DryCall& call) {
  const Operator& op = call.forward;
  if (op.inputs.empty() || largest_magnitude(op.output) > largest_magnitude(op.inputs.front()))
    return false;
  try {
    return policy.classify(call.overload) == CastClass::kNeutral;
  } catch (const Error&) {
    return true;
  }
}

/// One forward and backward pass in float.
class DryStep final : public CallListener {
 public:
  explicit DryStep(const Networks& networks) : networks_(networks) {}

  void starts() override {
    paths_.emplace(networks_.modules);
    trace_.emplace(*paths_);
  }

  void begins(const OperatorCall& call, bool again) override {
    Unit unit;
    unit.name = call.name();
    unit_ = trace_->add(std::move(unit));
    for (const at::Tensor& tensor : call.tensors()) trace_->read(unit_, tensor, false);
    for (std::size_t i = 0; i < kLowTargets; ++i) arrives_[i] = types_at(call.inputs(), i);
    made_ = {};
    open_ = false;
    if (!call.computes() || again) return;
    Recorded record{.unit = unit_, .exact = call.repeat()};
    if (!record.exact.ran || record.exact.outputs.empty()) return;
    describe(call, record.call);
    measure(call, record);
    calls_of_units_.emplace(unit_, calls_.size());
    calls_.push_back(std::move(record));
    open_ = true;
  }

  void ended(const std::vector<at::Tensor>& results) override {
    for (std::size_t i = 0; i < results.size(); ++i) {
      trace_->wrote(unit_, results[i], false);
      for (std::size_t target = 0; target < kLowTargets; ++target) {
        const std::vector<at::ScalarType>& made = made_[target];
        // Views, copies and the like pass on the type of what they are made from.
        const at::ScalarType passed =
            arrives_[target].empty() ? at::kFloat : arrives_[target].front();
        types_[target][memory_of(results[i])] = i < made.size() ? made[i] : passed;
      }
    }
    if (open_) calls_.back().arriving = follow_results(results);
    open_ = false;
  }

  /// After the backward pass.
  void add_to(DryFindings& found, bool is_first) {
    std::vector<std::vector<at::Tensor>> exact;
    for (Recorded& record : calls_) {
      double seconds = 0;
      exact.push_back(gradients_of(record.exact, *record.arriving, &seconds));
      record.call.seconds += seconds;
      record.call.forward.module = trace_->module_of(record.unit);
      describe_backward(record, exact.back());
      found.largest_gradient = std::max(found.largest_gradient, record.largest_gradient);
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      measure_backward(calls_[i], exact[i], found.largest_gradient);
      DryCall& call = calls_[i].call;
      if (!is_first && i < found.calls.size() && found.calls[i].overload == call.overload) {
        merge(found.calls[i], call);
      } else {
        found.calls.push_back(std::move(call));
      }
    }
  }

 private:
  struct Recorded {
    int unit = -1;
    Repeat exact;
    std::array<Repeat, kLowTargets> low = {};
    Arriving arriving = {};
    double largest_gradient = 0;
    DryCall call = {};
  };

  /// The types in which inputs would arrive under a target's default policy.
  std::vector<at::ScalarType> types_at(const std::vector<at::Tensor>& tensors,
                                       std::size_t target) const {
    std::vector<at::ScalarType> types;
    for (const at::Tensor& tensor : tensors) {
      const auto known = types_[target].find(memory_of(tensor));
      types.push_back(known == types_[target].end() ? at::kFloat : known->second);
    }
    return types;
  }

  void describe(const OperatorCall& call, DryCall& into) const {
    const Unobserved unobserved;
    into.overload = call.overload();
    into.is_product = is_product(call);
    into.forward.name = call.name();
    for (const at::Tensor& tensor : call.inputs()) {
      into.forward.inputs.push_back(range_of(tensor.detach()));
      const NamedTensor* const named = paths_->find(memory_of(tensor));
      if (named != nullptr) into.forward.inputs.back().parameter = named->name;
    }
  }

  void measure(const OperatorCall& call, Recorded& record) {
    // Once more without a graph: the first call of an operator may prepare things.
    record.call.seconds = call.repeat({}, {}, false).seconds;
    record.call.bytes = bytes_of(record.exact.outputs);
    {
      const Unobserved unobserved;
      record.call.forward.output = range_of(record.exact.outputs.front().detach());
    }
    for (std::size_t i = 0; i < kTargets.size(); ++i) {
      TargetMeasure& measure = record.call.targets[i];
      const std::size_t count = call.inputs().size();
      if (kTargets[i].is_float8) {
        if (!record.call.is_product) continue;
        const Repeat rounded = call.repeat(
            {.types = std::vector<at::ScalarType>(count, kTargets[i].type), .scaled = true}, {},
            /*records=*/false);
        measure.measured = rounded.ran;
        if (rounded.ran) measure.own = worst_error(rounded.outputs, record.exact.outputs);
        continue;
      }
      measure_low(call, i, record);
    }
  }

  void measure_low(const OperatorCall& call, std::size_t target, Recorded& record) {
    TargetMeasure& measure = record.call.targets[target];
    const CastRules rules{policies_[target], casting::Mode::kOperators};
    Repeat& low = record.low[target];
    low = call.repeat({.types = arrives_[target]}, rules);
    measure.measured = low.ran && !low.outputs.empty();
    if (!measure.measured) return;
    measure.own = worst_error(low.outputs, record.exact.outputs);
    measure.seconds = call.repeat({.types = arrives_[target]}, rules, false).seconds;
    measure.bytes = bytes_of(low.outputs);
    const double limit = kMostRoundings * kTargets[target].rounding;
    measure.fits = measure.own <= limit;
    if (!measure.fits) {
      const Repeat rounded =
          call.repeat({.types = arrives_[target], .back = true}, {}, /*records=*/false);
      if (rounded.ran && worst_error(rounded.outputs, record.exact.outputs) > limit)
        measure.feeders = feeders_of(record.unit, target);
    } else if (!is_low(low.outputs.front().scalar_type())) {
      measure.own = 0;  // it computes in float
    }
    // The advice will keep in float what does not fit: the next ones get float then.
    for (const at::Tensor& output : low.outputs)
      made_[target].push_back(measure.fits ? output.scalar_type() : at::kFloat);
  }

  /// The calls that made the inputs of a unit, through views and what passes values on.
  std::vector<std::size_t> feeders_of(int unit, std::size_t target) const {
    std::vector<std::size_t> feeders;
    std::vector<int> open{unit};
    for (std::size_t i = 0; i < open.size(); ++i) {
      for (const int before : trace_->unit(open[i]).reads) {
        if (std::ranges::find(open, before) != open.end()) continue;
        const auto known = calls_of_units_.find(before);
        const bool is_call = known != calls_of_units_.end();
        if (is_call) feeders.push_back(known->second);
        if (!is_call || passes_on(policies_[target], calls_[known->second].call))
          open.push_back(before);
      }
    }
    return feeders;
  }

  void describe_backward(Recorded& record, const std::vector<at::Tensor>& gradients) const {
    const Unobserved unobserved;
    Operator& backward = record.call.backward;
    backward.name = record.call.forward.name;
    backward.module = record.call.forward.module;
    backward.backward = true;
    for (const at::Tensor& gradient : *record.arriving) {
      if (!gradient.defined()) continue;
      backward.inputs.push_back(range_of(gradient));
      record.largest_gradient =
          std::max(record.largest_gradient, largest_magnitude(backward.inputs.back()));
    }
    for (const at::Tensor& gradient : gradients) {
      if (!gradient.defined()) continue;
      const TensorRange range = range_of(gradient);
      const bool is_first = !record.call.has_backward;
      if (is_first || largest_magnitude(range) > largest_magnitude(backward.output))
        backward.output = range;
      record.call.has_backward = true;
      record.largest_gradient = std::max(record.largest_gradient, largest_magnitude(range));
    }
  }

  /// With the loss scale that these gradients leave room for.
  void measure_backward(Recorded& record, const std::vector<at::Tensor>& exact, double largest) {
    if (exact.empty()) return;
    for (std::size_t i = 0; i < kLowTargets; ++i) {
      TargetMeasure& measure = record.call.targets[i];
      if (!measure.measured) continue;
      const double scale = detail::scale_for(largest, kTargets[i]);
      std::vector<at::Tensor> arriving = *record.arriving;
      for (at::Tensor& gradient : arriving) {
        if (gradient.defined() && scale != 1) gradient = gradient * scale;
      }
      double seconds = 0;
      std::vector<at::Tensor> low = gradients_of(record.low[i], arriving, &seconds);
      measure.seconds += seconds;
      if (low.empty()) continue;
      for (at::Tensor& gradient : low) {
        if (gradient.defined() && scale != 1) gradient = gradient.to(at::kFloat) / scale;
      }
      if (is_low(record.low[i].outputs.front().scalar_type()))
        measure.backward = worst_error(low, exact);
    }
  }

  const Networks& networks_;
  std::optional<ModulePaths> paths_;
  std::optional<Trace> trace_;
  const std::array<Policy, kLowTargets> policies_{Policy::defaults(kTargets[0].type),
                                                  Policy::defaults(kTargets[1].type)};
  // The types that memory would hold, by target; the trace keeps addresses from being used again.
  std::array<std::unordered_map<const c10::StorageImpl*, at::ScalarType>, kLowTargets> types_;
  std::array<std::vector<at::ScalarType>, kLowTargets> arrives_, made_;
  int unit_ = -1;
  bool open_ = false;
  std::vector<Recorded> calls_;
  std::unordered_map<int, std::size_t> calls_of_units_;
};

void find_odd_sizes(DryFindings& found) {
  constexpr std::int64_t kUnit = 8;
  for (const DryCall& call : found.calls) {
    if (!call.is_product) continue;
    for (const TensorRange& input : call.forward.inputs) {
      const std::size_t dims = input.sizes.size();
      if (dims < 2) continue;
      // Weights of convolutions are channels first; of all others the last two sizes are a matrix.
      const bool is_kernel = dims > 2 && !input.parameter.empty();
      const std::size_t first = is_kernel ? 0 : dims - 2;
      if (dims > 2 && input.parameter.empty() && call.overload.starts_with("conv")) continue;
      OddSize odd{call.forward.name, call.forward.module, input.sizes, input.sizes};
      for (std::size_t i = first; i < first + 2; ++i)
        odd.padded[i] = (odd.padded[i] + kUnit - 1) / kUnit * kUnit;
      if (odd.padded == odd.sizes) continue;
      const bool is_known = std::ranges::any_of(found.odd_sizes, [&](const OddSize& each) {
        return each.module == odd.module && each.name == odd.name && each.sizes == odd.sizes;
      });
      if (!is_known) found.odd_sizes.push_back(std::move(odd));
    }
  }
}

}  // namespace

DryRun detail::dry(const LintSubject& subject, const std::function<at::Tensor()>& loss, int steps) {
  if (subject.module == nullptr) raise<ConfigError>(kInDryRun, "the network is empty");
  if (!loss) raise<ConfigError>(kInDryRun, "got no function that computes the loss");
  if (steps < 1) raise<ConfigError>(kInDryRun, "got ", steps, " steps; expected at least 1");
  Networks networks;
  if (subject.state == nullptr) {
    networks.modules.push_back(subject.module.get());
  } else {
    for (const auto& model : subject.state->session().models()) {
      networks.models.push_back(model.get());
      networks.modules.push_back(&model->module());
    }
  }
  auto found = std::make_shared<DryFindings>();
  found->steps = steps;
  for (int i = 0; i < steps; ++i) {
    DryStep step(networks);
    observe_step(networks, {.all_float = true}, loss, 1, kInDryRun, step);
    step.add_to(*found, i == 0);
  }
  for (const DryCall& call : found->calls) found->ranges.push_back(call.forward);
  for (std::size_t i = found->calls.size(); i-- > 0;) {
    if (found->calls[i].has_backward) found->ranges.push_back(found->calls[i].backward);
  }
  find_odd_sizes(*found);
  return DryRun(std::move(found));
}

const std::vector<Operator>& DryRun::ranges() const noexcept {
  return found_->ranges;
}

int DryRun::steps() const noexcept {
  return found_->steps;
}

const std::vector<OddSize>& DryRun::odd_sizes() const noexcept {
  return found_->odd_sizes;
}

}  // namespace mezzo::insight
