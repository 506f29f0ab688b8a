#include "distributed/gradient_reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

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
      lanes_(std::move(lanes)) {
  refresh(false);
}

GradientReducer::~GradientReducer() {
  hooks_.reset();
  if (schedule_ == nullptr || !schedule_->open()) return;
  try {
    close_broken_backward();
  } catch (const std::exception&) {
    // The others learn of it from their own collectives.
  }
}

void GradientReducer::set_hook(CommHook hook) {
  hook_ = std::move(hook);
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
  if (compare) check_same_lines(*lanes_.front(), lines, kWhere);
  touched_.assign(parameters_.size(), false);
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
  if (schedule_->open()) close_broken_backward();
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

void GradientReducer::begin(std::int64_t backward) {
  if (schedule_->open()) close_broken_backward();
  scale_ = on_begin_ ? on_begin_() : settings_.scale;
  arrived_.assign(parameters_.size(), false);
  was_defined_.assign(parameters_.size(), false);
  notes_.clear();
  for (int b = 0; b < buckets_->count(); ++b) buckets_->mark(b).reduced = false;
  schedule_->begin(backward);
  ++counts_.reductions;
}

void GradientReducer::send(int bucket) {
  fill_bucket(bucket);
  start_bucket(bucket, buckets_->flat(bucket));
}

void GradientReducer::fill_bucket(int bucket) {
  std::vector<double> notes;
  for (int parameter : schedule_->plan().buckets[index(bucket)].parameters) {
    if (!arrived_[index(parameter)]) {
      const at::Tensor& gradient = parameters_[index(parameter)].tensor.grad();
      was_defined_[index(parameter)] = gradient.defined();
      if (gradient.defined()) {
        adopt(parameter);
      } else {
        buckets_->view(parameter).zero_();
      }
    }
    notes.push_back(touched_[index(parameter)] ? 1 : 0);
  }
  notes.push_back(0);
  const at::Tensor there = buckets_->notes(bucket);
  const at::Tensor written = at::empty({there.numel()}, at::kDouble);
  std::copy(notes.begin(), notes.end(), written.mutable_data_ptr<double>());
  there.copy_(written);
  notes_.insert(notes_.end(), notes.begin(), notes.end());
}

void GradientReducer::start_bucket(int bucket, const at::Tensor& flat) {
  Lane& lane = *lanes_[index(bucket) % lanes_.size()];
  counts_.bytes_sent += static_cast<std::int64_t>(flat.nbytes());
  if (hook_) {
    const std::int64_t elements = buckets_->gradients(bucket).numel();
    const GradientBucket given{bucket, buckets_->count(), flat.narrow(0, 0, elements)};
    sent_.push_back({nullptr, hook_(given, group_)});
  } else if (settings_.compress) {
    sent_.push_back({start_compressed_average(lane, flat, scale_, *settings_.compress), nullptr});
  } else {
    sent_.push_back({start_average(lane, flat, scale_, settings_.always_float), nullptr});
  }
}

void GradientReducer::wait_all() {
  std::vector<Sent> sent;
  sent.swap(sent_);
  for (Sent& one : sent) {
    if (one.average != nullptr) one.average->wait();
    if (one.finish_hook) one.finish_hook();
  }
}

// How many ranks said yes to each note: usage of each bucket's parameters, then its failure. Empty
// where nobody needs to know, since reading costs a GPU a stop.
std::vector<double> GradientReducer::read_notes() {
  if (hook_) return spread_notes(notes_);
  bool all_arrived = true;
  for (bool arrived : arrived_) all_arrived = all_arrived && arrived;
  const double unit = scale_.before * scale_.after;
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

// A user's hook carries gradients alone.
std::vector<double> GradientReducer::spread_notes(std::vector<double> own) {
  const at::Tensor sum = at::empty({static_cast<std::int64_t>(own.size())}, at::kDouble);
  std::copy(own.begin(), own.end(), sum.mutable_data_ptr<double>());
  lanes_.front()->all_reduce(sum)->wait();
  std::copy_n(sum.const_data_ptr<double>(), own.size(), own.begin());
  return own;
}

void GradientReducer::end() {
  if (!schedule_->open()) return;
  schedule_->finish();
  wait_all();
  settle(read_notes());
  touched_.assign(parameters_.size(), false);
  for (int b = 0; b < buckets_->count(); ++b) buckets_->mark(b).reduced = true;
  if (!order_agreed_) agree_on_order();
}

void GradientReducer::settle(const std::vector<double>& notes) {
  if (notes.empty()) return;
  constexpr double kSomebody = 0.5;
  std::ostringstream unused;
  std::size_t at = 0;
  for (const ranks::Bucket& bucket : schedule_->plan().buckets) {
    for (int parameter : bucket.parameters) {
      const double users = notes[at++];
      const bool is_new = !arrived_[index(parameter)] && !was_defined_[index(parameter)];
      if (is_new && users > kSomebody) {
        parameters_[index(parameter)].tensor.mutable_grad() = buckets_->view(parameter);
      }
      if (users < group_.size() - kSomebody) unused << " '" << name_of(parameter) << '\'';
    }
    if (notes[at++] > kSomebody) {
      raise(kWhere, "a backward pass broke off on another rank: the gradients of this step are ",
            "incomplete on all ranks");
    }
  }
  if (!settings_.unused_allowed && !unused.str().empty()) {
    raise(kWhere, "with find_unused_parameters = false every parameter needs a gradient on every ",
          "rank; these had none somewhere:", unused.str());
  }
}

// The first backward tells in which order gradients come; rank 0's order is everybody's.
void GradientReducer::agree_on_order() {
  order_agreed_ = true;
  const std::vector<int> own = schedule_->arrival_order();
  const at::Tensor order = at::empty({static_cast<std::int64_t>(own.size())}, at::kLong);
  std::copy(own.begin(), own.end(), order.mutable_data_ptr<std::int64_t>());
  lanes_.front()->broadcast(order, 0)->wait();
  const std::int64_t* first = order.const_data_ptr<std::int64_t>();
  rebuild(std::vector<int>(first, first + order.numel()));
  for (int b = 0; b < buckets_->count(); ++b) buckets_->mark(b).reduced = true;
}

void GradientReducer::send_substitutes(int first, double gradient, double failed) {
  for (int b = first; b < buckets_->count(); ++b) {
    const at::Tensor substitute = at::zeros_like(buckets_->flat(b));
    const std::int64_t elements = buckets_->gradients(b).numel();
    if (gradient != 0) substitute.narrow(0, 0, elements).fill_(gradient);
    substitute.narrow(0, substitute.numel() - 1, 1).fill_(failed);
    const auto count = static_cast<std::size_t>(substitute.numel() - elements);
    notes_.insert(notes_.end(), count - 1, 0.0);
    notes_.push_back(failed);
    start_bucket(b, substitute);
  }
}

// An exception left a backward of this rank after some buckets had been sent. The others wait for
// the rest: they get it, marked, so that both sides count the same collectives.
void GradientReducer::close_broken_backward() {
  const int first = schedule_->next();
  schedule_->close();
  send_substitutes(first, std::numeric_limits<double>::quiet_NaN(), 1);
  wait_all();
  if (hook_) spread_notes(notes_);
  // What was sent came back averaged with the others' breaks, perhaps after the caller had zeroed
  // it.
  for (int b = 0; b < first; ++b) buckets_->gradients(b).zero_();
  touched_.assign(parameters_.size(), false);
}

void GradientReducer::shadow_backward(AverageScale scale) {
  const std::lock_guard<std::mutex> lock(mutex_);
  scale_ = scale;
  notes_.clear();
  send_substitutes(0, 0, 0);
  wait_all();
  if (hook_) spread_notes(notes_);
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
  return counts_;
}

}  // namespace mezzo::parallel
