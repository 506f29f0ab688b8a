#include "distributed/agreement.h"

#include <ATen/ops/clone.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "distributed/bucket_registry.h"
#include "distributed/current.h"
#include "distributed/group.h"
#include "distributed/join.h"

namespace mezzo::parallel {

std::optional<ProcessGroup> world_if_any() {
  auto world = current_world();
  if (world == nullptr || world->size() == 1) return std::nullopt;
  return ProcessGroup(std::move(world));
}

at::Tensor agree_max(const at::Tensor& flag, const ProcessGroup& group) {
  at::Tensor agreed = flag.detach().clone(at::MemoryFormat::Contiguous);
  if (const auto& join = group.internals().join()) {
    join->exchange({Coming::kFlag, flag.numel(), static_cast<std::int64_t>(flag.scalar_type())});
  }
  group.internals().flags().all_reduce(agreed, ReduceOp::kMax)->wait();
  return agreed;
}

namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<BucketMark>> buckets;
};

Registry& registry() {
  // Never destroyed: reducers in static objects forget their buckets at exit.
  static Registry* const instance = std::make_unique<Registry>().release();
  return *instance;
}

const void* key_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

void register_bucket(const at::Tensor& flat, const std::shared_ptr<BucketMark>& mark) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.buckets[key_of(flat)] = mark;
}

void forget_bucket(const at::Tensor& flat) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.buckets.erase(key_of(flat));
}

std::shared_ptr<BucketMark> bucket_of(const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.has_storage()) return nullptr;
  Registry& all = registry();
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

bool is_bucket_view(const at::Tensor& gradient) {
  return bucket_of(gradient) != nullptr;
}

}  // namespace mezzo::parallel
