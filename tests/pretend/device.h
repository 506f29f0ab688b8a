// A device of type CUDA for tests, of which there are two in a process that loads this library
// beside LibTorch's CPU half. It does what a GPU does to a host: work is queued on streams and
// runs later, in any order that streams and events allow; its memory is a fault to the host;
// streams can be captured. Numbers come from LibTorch's CPU kernels, and from the CUDA kernels of
// ours compiled for the processor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mezzo::pretend {

/// One of the two devices.
at::Device device(int index = 0);

/// A new stream, which no other stream waits for by itself.
c10::Stream new_stream(int device = 0);

/// The order in which queued work runs. With 0 nothing runs before somebody waits for it, and no
/// more than that. Every other number makes other streams' work run at other times. At first it is
/// MEZZO_PRETEND_SEED of the environment, or else 0.
void seed(std::uint64_t);

/// Waits for everything that is queued anywhere; not counted.
void finish();

/// How often a host did what costs time on a GPU.
struct Counts {
  std::int64_t waits = 0;        // for a stream, a device, or a copy that blocks
  std::int64_t event_waits = 0;  // for an event that had not come to pass
  std::int64_t scalars = 0;      // waits that read one number
  std::int64_t copies_to_host = 0;
  std::int64_t copies_to_device = 0;
  std::int64_t bytes_to_host = 0;
  std::int64_t bytes_to_device = 0;
  std::int64_t launches = 0;
};

/// Counts what happens while it lives, on all threads.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Counts counts() const;
  /// Where each wait came from, of which there are counts().waits, innermost call first.
  std::vector<std::string> stacks() const;

 private:
  Counts before_;
  std::size_t stacks_before_;
};

/// While it lives, a tensor that is made without a device is made on this one, as
/// `torch.set_default_device` has it.
class DefaultDevice {
 public:
  explicit DefaultDevice(at::Device = device());
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  int before_;
};

/// Work that was captured and can be queued again: a CUDA graph. Captures follow
/// cudaStreamCaptureModeGlobal: what waits for the device fails while one is going on.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void begin(c10::Stream);
  /// Raises c10::Error where a stream that joined the capture was not waited for.
  void end();
  /// Queues the work on the current stream of the device that was captured.
  void replay();

  struct Work;

 private:
  std::shared_ptr<Work> work_;
};

/// Is this stream being captured?
bool is_capturing(c10::Stream);

}  // namespace mezzo::pretend
