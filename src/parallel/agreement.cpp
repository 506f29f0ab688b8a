#include "parallel/agreement.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "parallel/bucket_registry.h"
#include "parallel/group.h"
#include "parallel/join.h"
#include "parallel/session.h"
#include "parallel/streams.h"

namespace mezzo::parallel {

std::optional<ProcessGroup> world_if_any() {
  auto world = current_world();
  if (world == nullptr || world->size() == 1) return std::nullopt;
  return ProcessGroup(std::move(world));
}

namespace {

std::unique_ptr<Pending> start_maximum(const at::Tensor& values, const ProcessGroup& group) {
  Notice notice;
  notice.what = Coming::kFlag;
  notice.elements = values.numel();
  notice.type = static_cast<std::int64_t>(values.scalar_type());
  notice.on_cuda = values.is_cuda() ? 1 : 0;
  announce(group.internals(), notice, "overflow flags");
  return group.internals().flags().all_reduce(values, ReduceOp::kMax);
}

// A rank's words beside the number of its overflow. Ranks without data say nothing, as those do
// that an exception took out of their step.
constexpr double kFinite = 1;
constexpr double kNotFinite = 0.5;

// The flag as two doubles: who raised it, and what the best of the ranks has.
at::Tensor flag_numbers(const at::Tensor& flag,
                        const std::function<std::optional<std::int64_t>()>& place,
                        const ProcessGroup& group) {
  ranks::OverflowOrigin own{group.rank()};
  if (!flag.device().is_cpu()) {
    const at::Tensor up = flag.detach().ne(0).to(at::kDouble).reshape({1});
    return at::cat({up.mul(ranks::overflow_number(own, group.size())),
                    up.mul(kNotFinite - kFinite).add(kFinite)});
  }
  const bool up = flag.item<double>() != 0;
  if (up) own.place = place();
  at::Tensor numbers = at::empty({2}, at::kDouble);
  auto* const values = numbers.mutable_data_ptr<double>();
  values[0] = up ? ranks::overflow_number(own, group.size()) : 0;
  values[1] = up ? kNotFinite : kFinite;
  return numbers;
}

}  // namespace

at::Tensor agree_max(const at::Tensor& flag, const ProcessGroup& group) {
  at::Tensor agreed = flag.detach().clone(at::MemoryFormat::Contiguous);
  start_maximum(agreed, group)->wait();
  return agreed;
}

OverflowAgreement::OverflowAgreement(const at::Tensor& flag,
                                     const std::function<std::optional<std::int64_t>()>& place,
                                     const ProcessGroup& group)
    : flag_(flag),
      numbers_(flag_numbers(flag, place, group)),
      pending_(start_maximum(numbers_, group)) {}

OverflowAgreement::~OverflowAgreement() = default;
OverflowAgreement::OverflowAgreement(OverflowAgreement&&) noexcept = default;
OverflowAgreement& OverflowAgreement::operator=(OverflowAgreement&&) noexcept = default;

AgreedFlag OverflowAgreement::wait() {
  pending_->wait();
  keep_for_current_stream(numbers_);
  if (flag_.device().is_cpu()) {
    const bool up = numbers_.const_data_ptr<double>()[0] != 0;
    return {at::full_like(flag_, up ? 1 : 0), numbers_};
  }
  return {numbers_.select(0, 0).ne(0).to(flag_.scalar_type()).reshape(flag_.sizes()), numbers_};
}

AgreedFlag agree_overflow(const at::Tensor& flag,
                          const std::function<std::optional<std::int64_t>()>& place,
                          const ProcessGroup& group) {
  return OverflowAgreement(flag, place, group).wait();
}

bool make_others_skip(const at::Device& device, const ProcessGroup& group) {
  const at::Tensor numbers = at::zeros({2}, at::TensorOptions(device).dtype(at::kDouble));
  numbers.select(0, 0).fill_(ranks::overflow_number({group.rank()}, group.size()));
  start_maximum(numbers, group)->wait();
  return numbers.select(0, 1).item<double>() != 0;
}

std::optional<ranks::OverflowOrigin> origin_of(const at::Tensor& origin,
                                               const ProcessGroup& group) {
  auto found = ranks::overflow_origin(origin.select(0, 0).item<double>(), group.size());
  if (found) found->rank = group.ranks()[static_cast<std::size_t>(found->rank)];
  return found;
}

bool is_on_all(const at::Tensor& origin) {
  return origin.select(0, 1).item<double>() < kFinite;
}

int loops_left(const ProcessGroup& group) {
  return group.internals().session()->loops_left(group.ranks());
}

namespace {

std::atomic<int> watches{0};

}  // namespace

OverflowWatch::OverflowWatch() {
  ++watches;
}

OverflowWatch::~OverflowWatch() {
  --watches;
}

int overflow_watches() {
  return watches.load(std::memory_order_relaxed);
}

namespace {

struct LiveAgreements {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<BucketMark>> buckets;
};

LiveAgreements& live_agreements() {
  // Never destroyed: reducers in static objects forget their buckets at exit.
  static LiveAgreements* const instance = std::make_unique<LiveAgreements>().release();
  return *instance;
}

const void* key_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

void register_bucket(const at::Tensor& flat, const std::shared_ptr<BucketMark>& mark) {
  LiveAgreements& all = live_agreements();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.buckets[key_of(flat)] = mark;
}

void forget_bucket(const at::Tensor& flat) {
  LiveAgreements& all = live_agreements();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.buckets.erase(key_of(flat));
}

std::shared_ptr<BucketMark> bucket_of(const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.has_storage()) return nullptr;
  LiveAgreements& all = live_agreements();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.buckets.find(key_of(gradient));
  return found == all.buckets.end() ? nullptr : found->second;
}

bool spread_by_reduction(const std::vector<at::Tensor>& gradients, const ProcessGroup& group) {
  bool any = false;
  const BucketMark* checked = nullptr;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const auto mark = bucket_of(gradient);
    if (mark == nullptr || !mark->reduced) return false;
    any = true;
    if (mark.get() == checked) continue;
    checked = mark.get();
    for (int member : group.ranks()) {
      if (std::find(mark->ranks.begin(), mark->ranks.end(), member) == mark->ranks.end()) {
        return false;
      }
    }
  }
  return any;
}

std::optional<std::vector<int>> nonfinite_ranks(const std::vector<at::Tensor>& gradients) {
  for (const at::Tensor& gradient : gradients) {
    const auto mark = bucket_of(gradient);
    if (mark == nullptr || !mark->reduced || !mark->nonfinite_ranks) continue;
    std::vector<int> found;
    for (int member : *mark->nonfinite_ranks) {
      found.push_back(mark->ranks[static_cast<std::size_t>(member)]);
    }
    return found;
  }
  return std::nullopt;
}

std::int64_t reductions_of(const std::vector<at::Tensor>& gradients) {
  std::int64_t reductions = 0;
  for (const at::Tensor& gradient : gradients) {
    if (const auto mark = bucket_of(gradient)) reductions += mark->reductions;
  }
  return reductions;
}

bool is_bucket_view(const at::Tensor& gradient) {
  return bucket_of(gradient) != nullptr;
}

void close_broken_backward(const at::Tensor& gradient) {
  const auto mark = bucket_of(gradient);
  if (mark != nullptr && mark->close_broken_backward) mark->close_broken_backward();
}

}  // namespace mezzo::parallel
