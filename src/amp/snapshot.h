// State that a skipped step gives back besides weights and optimizer state.
#pragma once

#include <cstdint>
#include <vector>

#include "core/torch.h"

namespace mezzo::amp::detail {

/// Copies of tensors, and of the default generators' states, at one moment. Buffers are reused from
/// one moment to the next.
class Snapshot {
 public:
  explicit Snapshot(bool with_generators) : with_generators_(with_generators) {}

  /// Adds tensors to those that are kept.
  void watch(const std::vector<at::Tensor>& tensors);
  const std::vector<at::Tensor>& watched() const noexcept { return watched_; }

  /// Remembers how things are now; nothing if a moment is remembered already. In the capture of a
  /// graph it is the moment of a replay, whatever was remembered before the capture.
  void take();

  /// Gives back the remembered moment, if there is one, and keeps it.
  void give_back();

  /// As above, where `flag` (one element) is not zero, without reading it. Generators need a host
  /// decision and are left.
  void give_back_if(const at::Tensor& flag);

  /// The remembered values, in the order of `watched`.
  const std::vector<at::Tensor>& copies() const noexcept { return copies_; }

  /// The remembered states of the default generators; empty without them.
  const std::vector<at::Tensor>& generator_states() const noexcept {
    static const std::vector<at::Tensor> none;
    return with_generators_ ? generator_states_ : none;
  }

  /// The states that the generators had at the last moment that was taken, also after it was
  /// forgotten, for those who run a failed step again. Where generators are not given back, the
  /// states of devices may be undefined (generators.h). Empty before the first moment.
  const std::vector<at::Tensor>& last_generator_states() const noexcept {
    return generator_states_;
  }

  /// Takes these for the remembered values; they fit `watched`, or nothing is remembered. Without
  /// states of generators these are not given back.
  void remember(const std::vector<at::Tensor>& copies, std::vector<at::Tensor> generator_states);

  void forget() noexcept {
    taken_ = false;
    taken_before_ = false;
  }
  /// A capture comes to nothing: what was remembered before it counts again.
  void leave_capture() noexcept;
  bool is_taken() const noexcept { return taken_; }
  bool with_generators() const noexcept { return with_generators_; }

 private:
  std::uint64_t capture_now() const;
  void give_back_one_by_one(const at::Tensor& flag, const std::vector<std::size_t>& which);

  bool with_generators_;
  bool taken_ = false;
  std::uint64_t capture_ = 0;  // in which it was taken; 0: none
  bool taken_before_ = false;  // and there was one from before that
  std::vector<at::Tensor> watched_;
  std::vector<at::Tensor> copies_;
  std::vector<at::Tensor> generator_states_;
};

}  // namespace mezzo::amp::detail
