// The functions of LibTorch's CUDA part that this program calls. They are a library of their own,
// so that the program starts where LibTorch has no CUDA part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mezzo::device_check {

enum class Waits { kAllowed = 0, kWarnings = 1, kErrors = 2 };

struct CudaPart {
  /// The answer to a host wait of LibTorch's.
  void (*set_waits)(Waits);
  /// A graph that the current stream records from now on, with a memory pool of its own.
  void* (*begin_graph)();
  void (*end_graph)(void* graph);
  void (*play_graph)(void* graph);
  void (*free_graph)(void* graph);
  /// The most bytes that LibTorch's allocator had given out since reset_peak.
  std::int64_t (*peak_bytes)();
  std::int64_t (*held_bytes)();
  void (*reset_peak)();
  /// Gives back the memory that the allocator keeps for later.
  void (*empty_cache)();
  /// One line: the card, its capability, multiprocessors, memory, driver, run time.
  std::string (*describe)();
};

}  // namespace mezzo::device_check

extern "C" const mezzo::device_check::CudaPart* mezzo_device_check_cuda();
