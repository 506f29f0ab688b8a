#include "allocations.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace {
std::atomic<std::int64_t> allocations{0};
}

// Replaced for the whole program, LibTorch's own calls included.
void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace mezzo::bench {

// LibTorch reports every allocation and release of tensor memory to it.
struct LiveBytes::Reporter final : c10::MemoryReportingInfoBase {
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> peak{0};

  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::int64_t alive = live += bytes;
    std::int64_t most = peak;
    while (alive > most && !peak.compare_exchange_weak(most, alive)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
};

struct LiveBytes::Installed {
  std::shared_ptr<Reporter> reporter = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, reporter};
};

LiveBytes::LiveBytes() : installed_(new Installed) {}
LiveBytes::~LiveBytes() {
  delete installed_;
}
std::int64_t LiveBytes::now() const {
  return installed_->reporter->live;
}

std::int64_t LiveBytes::peak() const {
  return installed_->reporter->peak;
}

std::int64_t count_allocations(const std::function<void()>& function) {
  // Tensors allocate their memory by posix_memalign: their impl goes through operator new, so every
  // new tensor counts at least once.
  const std::int64_t before = allocations;
  function();
  return allocations - before;
}

}  // namespace mezzo::bench
