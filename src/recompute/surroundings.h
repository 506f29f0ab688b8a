// The state that the second run of a function must find as the first run found it.
#pragma once

#include <ATen/core/Generator.h>

#include <array>
#include <memory>
#include <vector>

#include "core/torch.h"
#include "mezzo/autocast.h"
#include "recompute/batch_norms.h"

namespace mezzo::recomputation {

/// LibTorch's own autocast on one kind of device.
struct NativeAutocast {
  at::DeviceType device;
  bool enabled;
  at::ScalarType type;

  static NativeAutocast here(at::DeviceType device);
  void restore() const;
};

/// The state of a generator at some time.
struct RandomState {
  at::Generator generator;
  at::Tensor state;

  static RandomState of(const at::Generator& generator);
  void restore() const;
};

/// As they are on this thread when it is made.
class Surroundings {
 public:
  /// @param inputs  generators of the devices that these are on count
  explicit Surroundings(const std::vector<at::Tensor>& inputs);

  /// While it lives, everything is as it was then, gradients are recorded, and batch norms give
  /// their running statistics back at the end.
  class Guard {
   public:
    explicit Guard(const Surroundings& surroundings);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    bool recorded_;
    bool native_cache_;
    std::vector<NativeAutocast> native_;
    std::vector<RandomState> random_;
    KeptStatistics statistics_;
    amp::Snapshot::Guard casts_;
  };

 private:
  std::vector<NativeAutocast> native_;
  bool native_cache_;
  std::vector<RandomState> random_;
  amp::Snapshot casts_;
};

}  // namespace mezzo::recomputation
