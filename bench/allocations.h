// Counts what a program allocates: operator new, and LibTorch's memory of tensors on CPUs.
#pragma once

#include <cstdint>
#include <functional>

namespace mezzo::bench {

/// How often memory is allocated, on any thread, while the function runs.
std::int64_t count_allocations(const std::function<void()>& function);

/// Bytes of tensors on CPUs that were allocated on this thread since construction and are alive.
class LiveBytes {
 public:
  LiveBytes();
  ~LiveBytes();
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;
  std::int64_t now() const;
  /// The most that were alive at once.
  std::int64_t peak() const;

 private:
  struct Reporter;
  struct Installed;
  Installed* installed_;
};

}  // namespace mezzo::bench
