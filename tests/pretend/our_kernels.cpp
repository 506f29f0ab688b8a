// Our CUDA kernels on the device: the library that is compiled for the processor, over the streams,
// the memory and the captures of this one. It is found under the name of the real one, and so is a
// driver.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "../kernels/cuda/emulation/runtime.h"
#include "counts.h"
#include "guard.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

constexpr int kNone = 0;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidHandle = 400;
constexpr int kNotReady = 600;
constexpr int kCaptureUnsupported = 900;

// A handle belongs to a device; the default stream is that of the current one.
bool is_of_current_device(void* stream) {
  return stream_of_handle(stream).device == current_device();
}

int launch(void* stream, std::function<void()> run) {
  if (!is_of_current_device(stream)) return kInvalidHandle;
  Streams::all().queue(stream_of_handle(stream), [run = std::move(run)] {
    const Memory::Opened opened;
    run();
  });
  return kNone;
}

int device_count(int* count) {
  *count = kDevices;
  return kNone;
}
int get_device(int* device) {
  *device = current_device();
  return kNone;
}
int set_device(int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  set_current_device(device);
  return kNone;
}
bool has_context(int) {
  return true;
}

thread_local int capture_mode = 0;

int exchange_capture_mode(int* mode) {
  std::swap(*mode, capture_mode);
  return kNone;
}

int allocate(void** memory, std::size_t bytes) {
  if (capture_mode != 2 && Streams::all().any_capture()) return kCaptureUnsupported;
  try {
    *memory = Memory::all().allocate_for_ever(bytes, current_device());
  } catch (const std::exception&) {
    return kOutOfMemory;
  }
  return kNone;
}

// CUDA waits for the device first.
int free_memory(void* memory) {
  if (memory == nullptr) return kNone;
  if (capture_mode != 2 && Streams::all().any_capture()) return kCaptureUnsupported;
  Streams::all().run_all();
  Memory::all().free(memory);
  return kNone;
}

int capture_of(void* stream, bool* capturing, unsigned long long* number) {
  const auto capture = Streams::all().capture_of(stream_of_handle(stream));
  *capturing = capture != nullptr;
  *number = capture == nullptr ? 0 : capture->number;
  return kNone;
}

int number_of_capture(void* stream, unsigned long long* number) {
  bool capturing = false;
  return capture_of(stream, &capturing, number);
}

int create_event(void** event) {
  *event = new Mark;
  return kNone;
}
int destroy_event(void* event) {
  delete static_cast<Mark*>(event);
  return kNone;
}
int record_event(void* event, void* stream) {
  if (!is_of_current_device(stream)) return kInvalidHandle;
  *static_cast<Mark*>(event) = Streams::all().mark(stream_of_handle(stream));
  return kNone;
}
int query_event(void* event) {
  const Mark& mark = *static_cast<Mark*>(event);
  if (mark.in_capture || (capture_mode != 2 && Streams::all().any_capture())) {
    return kCaptureUnsupported;
  }
  return Streams::all().passed(mark) ? kNone : kNotReady;
}
int wait_for_event(void* stream, void* event) {
  try {
    Streams::all().wait_on_stream(stream_of_handle(stream), *static_cast<Mark*>(event));
  } catch (const std::exception&) {
    return kCaptureUnsupported;
  }
  return kNone;
}

const mezzo_emulated::Runtime runtime{.launch = launch,
                                      .device_count = device_count,
                                      .get_device = get_device,
                                      .set_device = set_device,
                                      .has_context = has_context,
                                      .allocate = allocate,
                                      .free = free_memory,
                                      .capture_of = capture_of,
                                      .exchange_capture_mode = exchange_capture_mode,
                                      .create_event = create_event,
                                      .destroy_event = destroy_event,
                                      .record_event = record_event,
                                      .query_event = query_event,
                                      .wait_for_event = wait_for_event};

using AskCapture = int (*)(void* stream, unsigned long long* number);

struct OpensKernels {
  OpensKernels() {
    for (const char* path : {MEZZO_PRETEND_DRIVER, MEZZO_CUDA_EMULATION}) {
      void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        std::fprintf(stderr, "pretend CUDA: %s\n", dlerror());
        std::abort();
      }
      if (void* entry = dlsym(library, "mezzo_emulated_set_runtime")) {
        reinterpret_cast<MezzoEmulatedSetRuntime>(entry)(&runtime);
      }
      if (void* entry = dlsym(library, "mezzo_pretend_driver_ask")) {
        reinterpret_cast<void (*)(AskCapture)>(entry)(number_of_capture);
      }
    }
  }
};
const OpensKernels opens_kernels;

}  // namespace
}  // namespace mezzo::pretend
