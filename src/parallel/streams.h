// Streams of devices: what must be waited for before something is sent, and how long memory that a
// stream uses is kept. Nothing here waits on the host, and nothing happens for CPUs.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "core/torch.h"

namespace mezzo::parallel {

/// The stream that LibTorch queues on now for a device; nothing for CPUs.
std::optional<c10::Stream> current_stream_of(const at::Device& device);

/// Memory that was allocated on one stream and is used on the current one of its device: freed, it
/// is given to nobody before that stream has come so far. Undefined tensors are allowed.
void keep_for_current_stream(const at::Tensor& tensor);

/// The streams on which parts of some memory were written.
class StreamSet {
 public:
  /// The current one of the device writes.
  void add_current(const at::Device& device);
  /// The current stream of the memory's device waits for all others. The memory is kept for all.
  void join_at_current(const at::Tensor& memory) const;
  void clear() noexcept { streams_.clear(); }

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace mezzo::parallel
