#include "parallel/gradient_reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <exception>
#include <limits>
#include <utility>

#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "parallel/agreement.h"
#include "parallel/gradient_hooks.h"
#include "parallel/group.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInGradientReducer = "DistributedDataParallel";

}  // namespace

GradientReducer::GradientReducer(std::vector<ReducedParameter> parameters, Settings settings,
                                 ProcessGroup group, std::vector<std::shared_ptr<Lane>> lanes,
                                 std::shared_ptr<Lane> layout_lane)
    : all_(std::move(parameters)),
      settings_(std::move(settings)),
      group_(std::move(group)),
      sender_(group_, std::move(lanes), settings_.always_float),
      layout_lane_(std::move(layout_lane)) {
  refresh(false);
  claims_ = std::make_unique<GradientClaims>(all_, [this](const std::string& parameter) {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_ = parameter;
    hooks_.reset();
  });
}

GradientReducer::~GradientReducer() {
  claims_.reset();
  hooks_.reset();
  if (schedule_ == nullptr) return;
  try {
    close_broken_backward();
  } catch (const std::exception&) {
    // The others learn of it from their own collectives.
  }
}

bool GradientReducer::prepare() {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_claims();
  if (current_backward() >= 0) return false;
  if (schedule_->open()) close_open_backward();
  if (!is_current()) {
    if (before_layout_) before_layout_();
    refresh(true);
  }
  adopt_strangers();
  return true;
}

void GradientReducer::check_claims() const {
  if (taken_.empty()) return;
  raise<ConfigError>(kInGradientReducer, "a later DistributedDataParallel wraps parameter '",
                     taken_,
                     "', and averages its gradients; use that one, and wrap networks that share "
                     "parameters as one module");
}

// Gradients beside the buckets, from a checkpoint or before the model was wrapped, are added to and
// averaged with what comes.
void GradientReducer::adopt_strangers() {
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    const at::Tensor& gradient = parameters_[index(i)].tensor.grad();
    if (!gradient.defined() || buckets_->is_view(i, gradient)) continue;
    if (gradient.layout() != at::kStrided || gradient.requires_grad()) continue;
    // The gradient of a float master, which its weight shows; it was averaged.
    if (gradient.scalar_type() == at::kFloat &&
        at::isReducedFloatingType(parameters_[index(i)].tensor.scalar_type()))
      continue;
    adopt(i);
    touched_[index(i)] = true;
    buckets_->mark(schedule_->plan().bucket_of[index(i)]).reduced = false;
  }
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
  // One that runs inside of another, as recomputation does, is a part of it.
  if (!schedule_->runs(backward) && !runs_backward()) {
    begin(backward);
    backward_ = at_end_of_backward([this] {
      const std::lock_guard<std::mutex> end_lock(mutex_);
      end();
    });
  }
  adopt(parameter);
  look_for_overflow(parameter);
  arrived_[index(parameter)] = true;
  writers_[index(schedule_->plan().bucket_of[index(parameter)])].add_current(
      buckets_->view(parameter).device());
  if (schedule_->arrive(parameter) == ranks::BucketSchedule::Arrival::kTooLate) {
    raise(kInGradientReducer, "the gradient of '", name_of(parameter),
          "' was added to again in one backward ",
          "after it had been sent (a nested backward, as in recomputation?): use delay_allreduce");
  }
}

void GradientReducer::adopt(int parameter) {
  at::Tensor& gradient = parameters_[index(parameter)].tensor.mutable_grad();
  if (gradient.layout() != at::kStrided) {
    raise<UnsupportedError>(kInGradientReducer, "the gradient of '", name_of(parameter),
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
  nonfinite_[index(parameter)] = !bridge::all_finite(kInGradientReducer, at::TensorList(&view, 1));
}

void GradientReducer::begin(std::int64_t backward) {
  if (schedule_->open()) close_open_backward();
  hear_of_last_backward();
  terms_ = on_begin_ ? on_begin_() : Terms{settings_.scale, group_.size()};
  arrived_.assign(parameters_.size(), false);
  was_defined_.assign(parameters_.size(), false);
  notes_.clear();
  for (int b = 0; b < buckets_->count(); ++b) buckets_->mark(b).reduced = false;
  for (StreamSet& writers : writers_) writers.clear();
  backward_.reset();
  schedule_->begin(backward);
  ++counts_.reductions;
}

void GradientReducer::send(int bucket) {
  // The gradients may have been written on several streams, by several threads.
  writers_[index(bucket)].join_at_current(buckets_->flat(bucket));
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
      // Here nothing writes the view, but what the others have comes in by the bucket.
      bridge::bump_version(buckets_->view(parameter));
    } else {
      buckets_->view(parameter).zero_();
      touched_[index(parameter)] = false;  // the caller dropped what had accumulated
    }
  }
  put_notes(
      buckets_->notes(bucket),
      ranks::bucket_notes(planned, touched_,
                          overflowed ? std::optional(group_.rank()) : std::nullopt, group_.size()));
}

void GradientReducer::end() {
  if (!schedule_->open()) return;
  schedule_->finish();
  // Where this throws the backward stays open: what was sent is waited for before anything follows.
  if (on_end_) on_end_();
  schedule_->close();
  sender_.wait_all();
  for (int b = 0; b < buckets_->count(); ++b) keep_for_current_stream(buckets_->flat(b));
  const std::vector<double> notes = read_notes();
  touched_.assign(parameters_.size(), false);
  nonfinite_.assign(parameters_.size(), false);
  std::exception_ptr failure;
  try {
    settle(notes);
  } catch (...) {
    failure = std::current_exception();
  }
  // After an error too: ranks that have left the loop see none, and wait for the order.
  if (!order_agreed_) agree_on_order(failure == nullptr);
  if (failure) std::rethrow_exception(failure);
}

void GradientReducer::mark_reduced(const std::optional<std::vector<int>>& nonfinite_ranks) {
  for (int b = 0; b < buckets_->count(); ++b) {
    BucketMark& mark = buckets_->mark(b);
    mark.nonfinite_ranks = nonfinite_ranks;
    ++mark.reductions;
    mark.reduced = true;
  }
}

void GradientReducer::send_substitute(int bucket, double gradient, bool broke_off) {
  const at::Tensor substitute = at::zeros_like(buckets_->flat(bucket));
  const ranks::Bucket& planned = schedule_->plan().buckets[index(bucket)];
  if (gradient != 0) {
    // Not between the gradients: the others' padding stays zero.
    for (std::size_t i = 0; i < planned.parameters.size(); ++i) {
      const std::int64_t count = parameters_[index(planned.parameters[i])].tensor.numel();
      substitute.narrow(0, planned.offsets[i], count).fill_(gradient);
    }
  }
  put_notes(substitute.narrow(0, planned.size, substitute.numel() - planned.size),
            ranks::substitute_notes(planned, group_.size(), broke_off));
  sender_.start(*buckets_, bucket, substitute, terms_.scale);
}

void GradientReducer::close_broken_backward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (schedule_->open() && !runs_backward()) close_open_backward();
}

// An exception left a backward of this rank after some buckets had been sent. The others wait for
// the rest: they get it, marked, so that both sides count the same collectives.
void GradientReducer::close_open_backward() {
  const int first = schedule_->next();
  for (int b = first; b < buckets_->count(); ++b) {
    sender_.announce(b);
    schedule_->skip();
    send_substitute(b, std::numeric_limits<double>::quiet_NaN(), true);
  }
  schedule_->close();
  std::exception_ptr failure;
  try {
    if (on_end_) on_end_();
  } catch (...) {
    failure = std::current_exception();
  }
  sender_.wait_all();
  if (sender_.has_hook()) sender_.sum(notes_);
  // The sent gradients came back averaged with the others' breaks, perhaps after the caller had
  // zeroed it.
  for (int b = 0; b < first; ++b) buckets_->gradients(b).zero_();
  touched_.assign(parameters_.size(), false);
  nonfinite_.assign(parameters_.size(), false);
  if (!order_agreed_) agree_on_order(false);
  if (failure) std::rethrow_exception(failure);
}

void GradientReducer::begin_shadow(AverageScale scale) {
  const std::lock_guard<std::mutex> lock(mutex_);
  terms_.scale = scale;
  notes_.clear();
  // Open as the others' backward is: should an error end the loop in it, it is closed as theirs.
  backward_.reset();
  schedule_->begin(-1);
  if (sender_.has_hook()) return;
  for (int b = 0; b < buckets_->count(); ++b) send_shadow(b);
}

void GradientReducer::send_shadow(int bucket) {
  schedule_->skip();
  send_substitute(bucket, 0, false);
}

void GradientReducer::shadow_bucket(int bucket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  send_shadow(bucket);
}

void GradientReducer::end_shadow() {
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_->close();
  sender_.wait_all();
  if (sender_.has_hook()) sender_.sum(notes_);
  if (!order_agreed_) agree_on_order(true);
}

void GradientReducer::finish_without_gradients() {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_claims();
  if (!sync_) return;
  begin(-1);
  end();
}

void GradientReducer::zero_gradients(bool set_to_none) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool is_active = next < active_.size() && active_[next] == static_cast<int>(i);
    const int parameter = is_active ? static_cast<int>(next++) : -1;
    const at::Tensor& tensor = all_[i].tensor;
    at::Tensor& gradient = tensor.mutable_grad();
    if (!gradient.defined()) continue;
    // A gradient of zero would still let an optimizer decay a weight that was frozen since.
    const bool stays =
        is_active && tensor.requires_grad() && buckets_->is_view(parameter, gradient);
    if (stays || !set_to_none) {
      gradient = gradient.detach().zero_();
    } else {
      gradient.reset();
    }
  }
}

std::vector<at::Tensor> GradientReducer::buffers() const {
  std::vector<at::Tensor> flats;
  flats.reserve(static_cast<std::size_t>(buckets_->count()));
  for (int b = 0; b < buckets_->count(); ++b) flats.push_back(buckets_->gradients(b));
  return flats;
}

DDPStatistics GradientReducer::statistics() const {
  DDPStatistics all = counts_;
  all.bytes_sent = sender_.bytes_sent();
  return all;
}

}  // namespace mezzo::parallel
