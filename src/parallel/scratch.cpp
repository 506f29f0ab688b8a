#include "parallel/scratch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/streams.h"

namespace mezzo::parallel {
namespace {

constexpr std::size_t kMostKept = 16;

struct Pool {
  std::mutex mutex;
  std::vector<at::Tensor> free;
};

Pool& pool() {
  // Never destroyed: reducers in static objects give back at exit.
  static Pool* const instance = std::make_unique<Pool>().release();
  return *instance;
}

// The smallest that is large enough; none that would waste more than it holds.
at::Tensor borrow(std::int64_t bytes) {
  Pool& all = pool();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto best = all.free.end();
  for (auto one = all.free.begin(); one != all.free.end(); ++one) {
    const bool fits = one->numel() >= bytes && one->numel() / 2 <= bytes;
    if (fits && (best == all.free.end() || one->numel() < best->numel())) best = one;
  }
  if (best == all.free.end()) return {};
  at::Tensor memory = std::move(*best);
  all.free.erase(best);
  return memory;
}

}  // namespace

Scratch::Scratch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const std::int64_t elements = c10::multiply_integers(sizes);
  if (!options.device().is_cpu() || elements == 0) {
    tensor_ = at::empty(sizes, options);
    return;
  }
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const std::int64_t bytes = elements * static_cast<std::int64_t>(c10::elementSize(type));
  memory_ = borrow(bytes);
  if (!memory_.defined()) memory_ = at::empty({bytes}, options.dtype(at::kByte));
  tensor_ = memory_.narrow(0, 0, bytes).view(type).view(sizes);
}

void Scratch::give_back() {
  keep_for_current_stream(tensor_);  // it may have been allocated in a hook, on another one
  tensor_.reset();
  if (!memory_.defined()) return;
  Pool& all = pool();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.free.push_back(std::move(memory_));
  memory_.reset();
  if (all.free.size() <= kMostKept) return;
  all.free.erase(std::ranges::min_element(all.free, {}, [](const auto& t) { return t.numel(); }));
}

void release_scratch() {
  Pool& all = pool();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.free.clear();
}

}  // namespace mezzo::parallel
