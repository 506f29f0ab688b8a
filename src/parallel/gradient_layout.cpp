// Which gradients a reducer takes, and where they lie in its buckets.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "parallel/gradient_hooks.h"
#include "parallel/gradient_reducer.h"
#include "parallel/group.h"
#include "parallel/same_lines.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInGradientLayout = "DistributedDataParallel";

std::vector<ranks::PlannedParameter> planned(const std::vector<ReducedParameter>& parameters,
                                             const std::vector<std::uint8_t>& triggers) {
  std::vector<std::pair<at::ScalarType, at::Device>> kinds;
  std::vector<ranks::PlannedParameter> result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    const std::pair<at::ScalarType, at::Device> kind{tensor.scalar_type(), tensor.device()};
    auto found = std::find(kinds.begin(), kinds.end(), kind);
    if (found == kinds.end()) found = kinds.insert(kinds.end(), kind);
    result.push_back({tensor.numel(), static_cast<int>(found - kinds.begin()), triggers[i] != 0});
  }
  return result;
}

// On a lane where nothing else travels: a rank whose parameters did not change does something else
// meanwhile, and would take one for the other.
void agree_on_change(Lane& lane, const std::vector<std::string>& lines) {
  try {
    check_same_lines(lane, lines, kInGradientLayout);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& failure) {
    raise(kInGradientLayout,
          "parameters were frozen, unfrozen or given another type on this rank, and not ",
          "all ranks did the same: ", failure.what());
  }
}

}  // namespace

bool GradientReducer::is_current() const {
  std::size_t next = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!all_[i].tensor.requires_grad()) continue;
    if (next == active_.size() || active_[next] != static_cast<int>(i)) return false;
    const at::Tensor& view = buckets_->view(static_cast<int>(next));
    const at::Tensor& tensor = all_[i].tensor;
    if (view.scalar_type() != tensor.scalar_type() || view.device() != tensor.device() ||
        view.sizes() != tensor.sizes()) {
      return false;
    }
    ++next;
  }
  return next == active_.size();
}

void GradientReducer::refresh(bool compare) {
  std::vector<int> active;
  std::vector<ReducedParameter> parameters;
  std::vector<at::Tensor> tensors;
  std::vector<std::string> lines{"parameters that require gradients changed"};
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const ReducedParameter& parameter = all_[i];
    if (!parameter.tensor.requires_grad()) continue;
    active.push_back(static_cast<int>(i));
    parameters.push_back(parameter);
    tensors.push_back(parameter.tensor);
    std::ostringstream line;
    line << parameter.name << ' ' << c10::toString(parameter.tensor.scalar_type()) << ' '
         << parameter.tensor.sizes();
    lines.push_back(line.str());
  }
  if (compare) agree_on_change(*layout_lane_, lines);
  hooks_.reset();
  active_ = std::move(active);
  parameters_ = std::move(parameters);
  touched_.assign(parameters_.size(), false);
  nonfinite_.assign(parameters_.size(), false);
  order_agreed_ = false;
  unheard_.reset();
  std::vector<int> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  rebuild(order);
  hooks_ = std::make_unique<GradientHooks>(tensors, [this](int parameter) { hook(parameter); });
}

void GradientReducer::rebuild(const std::vector<int>& order) {
  std::vector<std::uint8_t> triggers;
  for (int i : active_) triggers.push_back(settings_.triggers[index(i)]);
  ranks::BucketPlan plan = ranks::plan_buckets(
      planned(parameters_, triggers), order,
      settings_.delayed ? std::numeric_limits<std::int64_t>::max() : settings_.message_size);
  auto buckets = std::make_unique<FlatBuckets>(plan, parameters_, group_.ranks());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!gradient.defined() || bucket_of(gradient) == nullptr) continue;
    const at::Tensor& view = buckets->view(static_cast<int>(i));
    gradient = view.copy_(gradient.detach());
  }
  for (int b = 0; b < buckets->count(); ++b) {
    buckets->mark(b).close_broken_backward = [this] { close_broken_backward(); };
  }
  buckets_ = std::move(buckets);
  writers_.assign(static_cast<std::size_t>(buckets_->count()), {});
  arrived_.assign(parameters_.size(), false);
  was_defined_.assign(parameters_.size(), false);
  counts_.buckets = buckets_->count();
  schedule_ = std::make_unique<ranks::BucketSchedule>(
      std::move(plan), settings_.delayed, [this](int bucket) { send(bucket); },
      [this](int bucket) { sender_.announce(bucket); });
}

// The first backward shows in which order gradients come; rank 0's order is everybody's.
void GradientReducer::agree_on_order(bool reduced) {
  order_agreed_ = true;
  const std::vector<int> own = schedule_->arrival_order();
  const at::Tensor order = at::empty({static_cast<std::int64_t>(own.size())}, at::kLong);
  std::copy(own.begin(), own.end(), order.mutable_data_ptr<std::int64_t>());
  sender_.lane().broadcast(order, 0)->wait();
  const std::int64_t* first = order.const_data_ptr<std::int64_t>();
  const std::optional<std::vector<int>> nonfinite_ranks =
      buckets_->count() > 0 ? buckets_->mark(0).nonfinite_ranks : std::nullopt;
  rebuild(std::vector<int>(first, first + order.numel()));
  if (reduced) mark_reduced(nonfinite_ranks);
}

}  // namespace mezzo::parallel
