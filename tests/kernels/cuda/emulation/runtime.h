// A run time of CUDA that a program puts under the emulated kernels: streams that delay what is
// queued, several devices, captures, memory of its own. Free of the emulation's other headers, so
// that a program that opens the emulated library by its path includes this alone.
#pragma once

#include <cstddef>
#include <functional>

namespace mezzo_emulated {

/// Streams and events are the program's own; errors are CUDA's numbers, 0 for none. A null member
/// leaves its call to the emulation itself, which runs everything at once on the only device.
/// Every member may be called by any thread.
struct Runtime {
  /// Takes over a launch: `run` runs the whole grid, on the calling thread, as often as it is
  /// called. It holds its arguments, and may be copied and called later, on another thread. Grids
  /// run one at a time: a second thread's `run` waits for the first one's end.
  int (*launch)(void* stream, std::function<void()> run) = nullptr;

  int (*device_count)(int* count) = nullptr;
  int (*get_device)(int* device) = nullptr;
  int (*set_device)(int device) = nullptr;
  /// Has anybody made a context on this device?
  bool (*has_context)(int device) = nullptr;

  /// Memory of the current device.
  int (*allocate)(void** memory, std::size_t bytes) = nullptr;
  int (*free)(void* memory) = nullptr;

  int (*stream_is_capturing)(void* stream, bool* capturing) = nullptr;
  /// The same call exchanges the calling thread's mode of captures: 0 global, 1 of the thread, 2
  /// relaxed, as CUDA numbers them.
  int (*exchange_capture_mode)(int* mode) = nullptr;

  int (*create_event)(void** event) = nullptr;
  int (*destroy_event)(void* event) = nullptr;
  int (*record_event)(void* event, void* stream) = nullptr;
  /// cudaErrorNotReady, 600, while what the event stands behind is not done.
  int (*query_event)(void* event) = nullptr;
  int (*wait_for_event)(void* stream, void* event) = nullptr;
};

}  // namespace mezzo_emulated

/// Both are found by their names in the emulated library.

/// From now on the emulated library calls these functions, which must outlive their use; null:
/// none. Not while anything is queued.
extern "C" void mezzo_emulated_set_runtime(const mezzo_emulated::Runtime*);
using MezzoEmulatedSetRuntime = void (*)(const mezzo_emulated::Runtime*);

/// Threads and blocks of later launches run in an order that follows from the seed; 0: in that of
/// their numbers. At first it is MEZZO_EMULATED_ORDER of the environment, or else 1.
extern "C" void mezzo_emulated_set_order(unsigned seed);
using MezzoEmulatedSetOrder = void (*)(unsigned seed);
