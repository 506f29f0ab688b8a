// The device that is checked, and CUDA's own answers about it where LibTorch's CUDA part is loaded.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device_check/cuda_part.h"

namespace mezzo::device_check {

/// Where checks run, and how large they are.
class Device {
 public:
  /// Loads our kernels and LibTorch's CUDA part if a CUDA device is asked for and none is there
  /// yet. Throws Error with the reason where there is none.
  Device(const std::string& name, bool small);

  at::Device place() const { return place_; }
  bool is_cuda() const { return place_.is_cuda(); }
  /// Sizes that a CPU does in seconds.
  bool is_small() const { return small_; }
  /// Waits until all that was queued has run.
  void wait() const;
  /// A stream of its own; the CPU's only one on a CPU.
  c10::Stream new_stream() const;
  /// CUDA's own functions; null on a CPU, and where the part of this program was not built.
  const CudaPart* cuda() const { return cuda_; }

 private:
  at::Device place_;
  bool small_;
  const CudaPart* cuda_ = nullptr;
};

/// Work that is recorded once and played again: a CUDA graph; on a CPU the work itself.
class Recording {
 public:
  /// Records on the current stream, which on CUDA must not be the default one. Nothing runs.
  Recording(const Device& device, const std::function<void()>& work);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  void play() const;

 private:
  const CudaPart* cuda_;
  void* graph_ = nullptr;
  std::function<void()> work_;
};

/// Each host wait that LibTorch makes for a CUDA device while this lives is an error with a stack.
class NoWaits {
 public:
  explicit NoWaits(const Device& device);
  ~NoWaits();
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  const CudaPart* cuda_;
};

/// Counts the host waits of the thread that made it.
class CountedWaits {
 public:
  explicit CountedWaits(const Device& device);
  ~CountedWaits();
  CountedWaits(const CountedWaits&) = delete;
  CountedWaits& operator=(const CountedWaits&) = delete;
  int count() const;

 private:
  struct Counter;
  const CudaPart* cuda_;
  std::unique_ptr<Counter> counter_;
};

}  // namespace mezzo::device_check
