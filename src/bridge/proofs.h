// Which families of kernels have proven themselves on which devices of this process: each answers
// questions whose answers LibTorch's operators know, before it is used for the first time.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/family.h"
#include "core/torch.h"
#include "kernels/cuda/interface.h"

namespace mezzo::bridge {

/// The functions of one table on the devices of one type, proven or not. Thread-safe.
class Proofs {
 public:
  /// The proofs of these functions, whatever table they are in; they live as long as the process.
  static Proofs& of(const kernels::cuda::Interface&, c10::DeviceType);

  Proofs(const kernels::cuda::Interface& functions, c10::DeviceType type)
      : functions_(functions), type_(type) {}

  /// The functions, wherever their table was.
  const kernels::cuda::Interface& functions() const { return functions_; }

  /// May the family be used there? The first question makes the proof, which waits for the device;
  /// later ones read an answer. A family that fails is told of by a message. Not proven and not
  /// failed are families whose question comes while the device's current stream is being captured,
  /// or while memory is short: false, until the next question.
  bool hold(const at::Device&, Family);

  /// Where a family failed there: the first difference. Empty: it did not, or was not tried.
  std::string difference(const at::Device&, Family) const;

 private:
  enum class Verdict : std::uint8_t { kUnknown, kHolds, kFails };
  using OfDevice = std::array<std::atomic<Verdict>, std::size(kFamilies)>;
  static constexpr std::size_t kDevices = 128;  // what a device's index can count

  bool make(const at::Device&, Family, std::atomic<Verdict>&);
  bool has_functions(const kernels::cuda::Interface&, c10::DeviceType) const;

  kernels::cuda::Interface functions_;
  c10::DeviceType type_;
  std::array<OfDevice, kDevices> verdicts_{};
  std::mutex making_;
  mutable std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, Family>, std::string> differences_;
};

/// Proves all families on the devices of these tensors that have kernels, so that what follows may
/// be captured.
void prove_kernels(at::TensorList);

}  // namespace mezzo::bridge
