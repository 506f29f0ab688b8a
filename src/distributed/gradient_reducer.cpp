#include "distributed/gradient_reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <numeric>
#include <utility>

#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "distributed/agreement.h"
#include "distributed/gradient_hooks.h"
#include "distributed/group.h"
#include "distributed/same_lines.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kWhere = "DistributedDataParallel";

std::size_t index(int number) {
  return static_cast<std::size_t>(number);
}

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

}  // namespace

GradientReducer::GradientReducer(std::vector<ReducedParameter> parameters, Settings settings,
                                 ProcessGroup group, std::vector<std::shared_ptr<Lane>> lanes)
    : all_(std::move(parameters)),
      settings_(std::move(settings)),
      group_(std::move(group)),
      sender_(group_, std::move(lanes), settings_.always_float) {
  refresh(false);
}

GradientReducer::~GradientReducer() {
  hooks_.reset();
  if (schedule_ == nullptr) return;
  try {
    close_broken_backward();
  } catch (const std::exception&) {
    // The others learn of it from their own collectives.
  }
}

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
  hooks_.reset();
  active_.clear();
  parameters_.clear();
  std::vector<at::Tensor> tensors;
  std::vector<std::string> lines{"parameters that require gradients changed"};
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const ReducedParameter& parameter = all_[i];
    if (!parameter.tensor.requires_grad()) continue;
    active_.push_back(static_cast<int>(i));
    parameters_.push_back(parameter);
    tensors.push_back(parameter.tensor);
    lines.push_back(parameter.name + " " + c10::toString(parameter.tensor.scalar_type()));
  }
  if (compare) check_same_lines(sender_.lane(), lines, kWhere);
  touched_.assign(parameters_.size(), false);
  nonfinite_.assign(parameters_.size(), false);
  order_agreed_ = false;
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
  buckets_ = std::move(buckets);
  arrived_.assign(parameters_.size(), false);
  was_defined_.assign(parameters_.size(), false);
  counts_.buckets = buckets_->count();
  schedule_ = std::make_unique<ranks::BucketSchedule>(std::move(plan), settings_.delayed,
                                                      [this](int bucket) { send(bucket); });
}

void GradientReducer::prepare() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (schedule_->open()) close_open_backward();
  if (!is_current()) refresh(true);
}

std::string GradientReducer::name_of(int parameter) const {
  return parameters_[index(parameter)].name;
}

void GradientReducer::hook(int parameter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  touched_[index(parameter)] = true;
  buckets_->mark(schedule_->plan().bucket_of[index(parameter)]).reduced = false;
  if (!sync_) {
    // Also what only accumulates lies in its bucket: so everybody sees that it waits for the
    // others.
    adopt(parameter);
    look_for_overflow(parameter);
    return;
  }
  const std::int64_t backward = current_backward();
  if (!schedule_->runs(backward)) {
    begin(backward);
    at_end_of_backward([this] {
      const std::lock_guard<std::mutex> end_lock(mutex_);
      end();
    });
  }
  adopt(parameter);
  look_for_overflow(parameter);
  arrived_[index(parameter)] = true;
  if (schedule_->arrive(parameter) == ranks::BucketSchedule::Arrival::kTooLate) {
    raise(kWhere, "the gradient of '", name_of(parameter), "' was added to again in one backward ",
          "after it had been sent (a nested backward, as in recomputation?): use delay_allreduce");
  }
}

void GradientReducer::adopt(int parameter) {
  at::Tensor& gradient = parameters_[index(parameter)].tensor.mutable_grad();
  if (gradient.layout() != at::kStrided) {
    raise<UnsupportedError>(kWhere, "the gradient of '", name_of(parameter),
                            "' is sparse; only dense gradients are reduced");
  }
  if (buckets_->is_view(parameter, gradient)) return;
  // After zero_grad() with set_to_none autograd brings a tensor of its own.
  const at::Tensor& view = buckets_->view(parameter);
  view.copy_(gradient.detach());
  counts_.copied_bytes += static_cast<std::int64_t>(view.nbytes());
  gradient = view;
}

// After the average every rank has the overflow: whose it was can be seen only before, while the
// gradient that was just written is in the cache.
void GradientReducer::look_for_overflow(int parameter) {
  if (overflow_watches() == 0) return;
  const at::Tensor& view = buckets_->view(parameter);
  if (!view.is_cpu() || !bridge::kernel_dtype(view.scalar_type())) return;
  nonfinite_[index(parameter)] = !bridge::all_finite(kWhere, at::TensorList(&view, 1));
}

void GradientReducer::begin(std::int64_t backward) {
  if (schedule_->open()) close_open_backward();
  terms_ = on_begin_ ? on_begin_() : Terms{settings_.scale, group_.size()};
  arrived_.assign(parameters_.size(), false);
  was_defined_.assign(parameters_.size(), false);
  notes_.clear();
  for (int b = 0; b < buckets_->count(); ++b) buckets_->mark(b).reduced = false;
  schedule_->begin(backward);
  ++counts_.reductions;
}

void GradientReducer::send(int bucket) {
  fill_bucket(bucket);
  sender_.start(*buckets_, bucket, buckets_->flat(bucket), terms_.scale);
}

void GradientReducer::fill_bucket(int bucket) {
  const ranks::Bucket& planned = schedule_->plan().buckets[index(bucket)];
  bool overflowed = false;
  for (int parameter : planned.parameters) {
    overflowed = overflowed || nonfinite_[index(parameter)];
    if (arrived_[index(parameter)]) continue;
    const at::Tensor& gradient = parameters_[index(parameter)].tensor.grad();
    was_defined_[index(parameter)] = gradient.defined();
    if (gradient.defined()) {
      adopt(parameter);
    } else {
      buckets_->view(parameter).zero_();
    }
  }
  put_notes(
      buckets_->notes(bucket),
      ranks::bucket_notes(planned, touched_,
                          overflowed ? std::optional(group_.rank()) : std::nullopt, group_.size()));
}

void GradientReducer::put_notes(const at::Tensor& there, const std::vector<double>& notes) {
  const at::Tensor written = at::empty({there.numel()}, at::kDouble);
  std::copy(notes.begin(), notes.end(), written.mutable_data_ptr<double>());
  there.copy_(written);
  notes_.insert(notes_.end(), notes.begin(), notes.end());
}

// How many ranks said yes to each note on each bucket. Empty where nobody needs to know, since
// reading costs a GPU a stop.
std::vector<double> GradientReducer::read_notes() {
  if (sender_.has_hook()) return sender_.sum(notes_);
  bool all_arrived = true;
  for (bool arrived : arrived_) all_arrived = all_arrived && arrived;
  const double unit = terms_.scale.before * terms_.scale.after;
  std::vector<double> counts;
  for (int b = 0; b < buckets_->count(); ++b) {
    if (buckets_->flat(b).is_cuda() && all_arrived) return {};
    const at::Tensor notes = buckets_->notes(b).to(at::kCPU, at::kDouble);
    for (std::int64_t i = 0; i < notes.numel(); ++i) {
      counts.push_back(notes.const_data_ptr<double>()[i] / unit);
    }
  }
  return counts;
}

void GradientReducer::end() {
  if (!schedule_->open()) return;
  schedule_->finish();
  if (on_end_) on_end_();
  sender_.wait_all();
  settle(read_notes());
  touched_.assign(parameters_.size(), false);
  nonfinite_.assign(parameters_.size(), false);
  if (!order_agreed_) agree_on_order();
}

void GradientReducer::settle(const std::vector<double>& notes) {
  if (notes.empty()) return mark_reduced(std::nullopt);
  constexpr double kSomebody = 0.5;
  const ranks::BucketReport report =
      ranks::read_bucket_notes(schedule_->plan(), notes, group_.size());
  std::string unused;
  for (const ranks::Bucket& bucket : schedule_->plan().buckets) {
    for (int parameter : bucket.parameters) {
      const double users = report.users[index(parameter)];
      const bool is_new = !arrived_[index(parameter)] && !was_defined_[index(parameter)];
      if (is_new && users > kSomebody) {
        parameters_[index(parameter)].tensor.mutable_grad() = buckets_->view(parameter);
      }
      if (users < terms_.ranks - kSomebody) unused += " '" + name_of(parameter) + "'";
    }
  }
  if (report.broke_off) {
    raise(kWhere, "a backward pass broke off on another rank: the gradients of this step are ",
          "incomplete on all ranks");
  }
  if (!settings_.unused_allowed && !unused.empty()) {
    raise(kWhere, "with find_unused_parameters = false every parameter needs a gradient on every ",
          "rank; these had none somewhere:", unused);
  }
  const bool looked = overflow_watches() > 0 && buckets_->flat(0).is_cpu();
  mark_reduced(looked ? std::optional(report.nonfinite_ranks) : std::nullopt);
}

void GradientReducer::mark_reduced(const std::optional<std::vector<int>>& nonfinite_ranks) {
  for (int b = 0; b < buckets_->count(); ++b) {
    BucketMark& mark = buckets_->mark(b);
    mark.nonfinite_ranks = nonfinite_ranks;
    mark.reduced = true;
  }
}

// The first backward tells in which order gradients come; rank 0's order is everybody's.
void GradientReducer::agree_on_order() {
  order_agreed_ = true;
  const std::vector<int> own = schedule_->arrival_order();
  const at::Tensor order = at::empty({static_cast<std::int64_t>(own.size())}, at::kLong);
  std::copy(own.begin(), own.end(), order.mutable_data_ptr<std::int64_t>());
  sender_.lane().broadcast(order, 0)->wait();
  const std::int64_t* first = order.const_data_ptr<std::int64_t>();
  const std::optional<std::vector<int>> nonfinite_ranks = buckets_->mark(0).nonfinite_ranks;
  rebuild(std::vector<int>(first, first + order.numel()));
  mark_reduced(nonfinite_ranks);
}

void GradientReducer::send_substitute(int bucket, double gradient, bool broke_off) {
  const at::Tensor substitute = at::zeros_like(buckets_->flat(bucket));
  const std::int64_t elements = buckets_->gradients(bucket).numel();
  if (gradient != 0) substitute.narrow(0, 0, elements).fill_(gradient);
  put_notes(
      substitute.narrow(0, elements, substitute.numel() - elements),
      ranks::substitute_notes(schedule_->plan().buckets[index(bucket)], group_.size(), broke_off));
  sender_.start(*buckets_, bucket, substitute, terms_.scale);
}

void GradientReducer::close_broken_backward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (schedule_->open()) close_open_backward();
}

// An exception left a backward of this rank after some buckets had been sent. The others wait for
// the rest: they get it, marked, so that both sides count the same collectives.
void GradientReducer::close_open_backward() {
  const int first = schedule_->next();
  schedule_->close();
  for (int b = first; b < buckets_->count(); ++b) {
    send_substitute(b, std::numeric_limits<double>::quiet_NaN(), true);
  }
  if (on_end_) on_end_();
  sender_.wait_all();
  if (sender_.has_hook()) sender_.sum(notes_);
  // What was sent came back averaged with the others' breaks, perhaps after the caller had zeroed
  // it.
  for (int b = 0; b < first; ++b) buckets_->gradients(b).zero_();
  touched_.assign(parameters_.size(), false);
  nonfinite_.assign(parameters_.size(), false);
}

void GradientReducer::begin_shadow(AverageScale scale) {
  const std::lock_guard<std::mutex> lock(mutex_);
  terms_.scale = scale;
  notes_.clear();
  if (sender_.has_hook()) return;
  for (int b = 0; b < buckets_->count(); ++b) send_substitute(b, 0, false);
}

void GradientReducer::shadow_bucket(int bucket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  send_substitute(bucket, 0, false);
}

void GradientReducer::end_shadow() {
  const std::lock_guard<std::mutex> lock(mutex_);
  sender_.wait_all();
  if (sender_.has_hook()) sender_.sum(notes_);
  if (!order_agreed_) agree_on_order();
}

void GradientReducer::finish_without_gradients() {
  const std::lock_guard<std::mutex> lock(mutex_);
  begin(-1);
  end();
}

void GradientReducer::zero_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    if (buckets_->is_view(static_cast<int>(i), gradient)) {
      gradient.detach().zero_();
    } else {
      gradient.reset();
    }
  }
}

std::vector<at::Tensor> GradientReducer::buffers() const {
  std::vector<at::Tensor> flats;
  for (int b = 0; b < buckets_->count(); ++b) flats.push_back(buckets_->gradients(b));
  return flats;
}

DDPStatistics GradientReducer::statistics() const {
  DDPStatistics all = counts_;
  all.bytes_sent = sender_.bytes_sent();
  return all;
}

}  // namespace mezzo::parallel
