#include "parallel/agreement.h"

#include <ATen/ops/clone.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "parallel/bucket_registry.h"
#include "parallel/group.h"
#include "parallel/join.h"

namespace mezzo::parallel {

std::optional<ProcessGroup> world_if_any() {
  auto world = current_world();
  if (world == nullptr || world->size() == 1) return std::nullopt;
  return ProcessGroup(std::move(world));
}

at::Tensor agree_max(const at::Tensor& flag, const ProcessGroup& group) {
  at::Tensor agreed = flag.detach().clone(at::MemoryFormat::Contiguous);
  Notice notice;
  notice.what = Coming::kFlag;
  notice.elements = flag.numel();
  notice.type = static_cast<std::int64_t>(flag.scalar_type());
  notice.on_cuda = flag.is_cuda() ? 1 : 0;
  announce(group.internals(), notice, "overflow flags");
  group.internals().flags().all_reduce(agreed, ReduceOp::kMax)->wait();
  return agreed;
}

AgreedFlag agree_overflow(const at::Tensor& flag,
                          const std::function<std::optional<std::int64_t>()>& place,
                          const ProcessGroup& group) {
  const bool on_host = flag.device().is_cpu();
  ranks::OverflowOrigin own{group.rank()};
  if (on_host && flag.item<double>() != 0) own.place = place();
  const at::Tensor number =
      flag.ne(0).to(at::kDouble).mul(ranks::overflow_number(own, group.size()));
  AgreedFlag agreed;
  agreed.origin = agree_max(number, group);
  agreed.found_inf = agreed.origin.ne(0).to(flag.scalar_type());
  return agreed;
}

std::optional<ranks::OverflowOrigin> origin_of(const at::Tensor& origin,
                                               const ProcessGroup& group) {
  auto found = ranks::overflow_origin(origin.item<double>(), group.size());
  if (found) found->rank = group.ranks()[static_cast<std::size_t>(found->rank)];
  return found;
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

bool is_bucket_view(const at::Tensor& gradient) {
  return bucket_of(gradient) != nullptr;
}

void close_broken_backward(const at::Tensor& gradient) {
  const auto mark = bucket_of(gradient);
  if (mark != nullptr && mark->close_broken_backward) mark->close_broken_backward();
}

}  // namespace mezzo::parallel
