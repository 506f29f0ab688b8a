// The order between the streams of a device that fill a weight's copy and those that read it.
//
// Note [Streams and captures]: a device works off each of its streams by itself. What one stream
// fills, another may read only after a wait that is queued there; a mutex orders the threads alone.
// And what is queued while a graph is captured runs when the graph is replayed, never or many
// times: a copy that was cast in a capture is that capture's own, and one that was cast outside is
// not for a capture, whose replays would go on with it after the weight has changed. Processors
// have neither.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/torch.h"

namespace mezzo::casting {

/// Where this thread queues work on a device.
struct QueuePlace {
  /// Now.
  static QueuePlace of(const at::Device& device) {
    return device.is_cpu() ? QueuePlace{} : of_streams(device);
  }
  /// No: what is called there is done at once.
  bool has_streams() const { return stream.has_value(); }

  std::optional<c10::Stream> stream;
  std::uint64_t capture = 0;  // of a graph, which the stream takes part in; 0: none

 private:
  static QueuePlace of_streams(const at::Device& device);
};

/// The end of the work that filled copies, on the stream that did it. For one thread at a time.
class FillEnd {
 public:
  /// All that was queued at this place till now, which has streams.
  explicit FillEnd(const QueuePlace& place);

  /// The same on another stream of the device, or later, for copies that were filled anew.
  void move_to(const QueuePlace& place);

  /// What is queued at the reader's place from now on comes after it. Queues a wait once for each
  /// other stream.
  void comes_before(const QueuePlace& reader);

 private:
  c10::Stream stream_;
  c10::Event event_;
  c10::SmallVector<c10::Stream, 2> waiting_;
};

/// Of one update: the ends of what was filled on each device.
class FillEnds {
 public:
  /// Now, or when this was first asked for the device. Null without streams.
  std::shared_ptr<FillEnd> of(const at::Device& device);

 private:
  std::vector<std::pair<at::Device, std::shared_ptr<FillEnd>>> ends_;
};

/// The streams that use a piece of memory, other than the one that it was allocated on: freed, it
/// goes to another tensor only after what is queued there.
class MemoryUsers {
 public:
  /// The memory has just been allocated there.
  void begin(const QueuePlace& place);
  void add(const QueuePlace& place, const at::Tensor& memory);

 private:
  c10::SmallVector<c10::Stream, 2> known_;
};

}  // namespace mezzo::casting
