// CUDA's run time as the kernels' sources call it: the program's own, or one in which everything is
// done at once.
#include <cuda_runtime.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "memory.h"
#include "state.h"

namespace mezzo_emulated {
namespace {

std::atomic<const Runtime*> programs_own{nullptr};
std::atomic<bool> out_of_memory{false};
std::atomic<bool> is_capturing{false};
std::atomic<cudaError_t> answer_on_code{cudaSuccess};
thread_local cudaError_t last = cudaSuccess;

/// The program's function, or else the emulation's answer. An error is noted.
template <typename Answer, typename... Parameters, typename... Arguments>
cudaError_t ask(int (*Runtime::*member)(Parameters...), const Answer& answer,
                Arguments... arguments) {
  const Runtime* own = runtime();
  const bool is_there = own != nullptr && own->*member != nullptr;
  const auto error = is_there ? static_cast<cudaError_t>((own->*member)(arguments...)) : answer();
  note_error(error);
  return error;
}

int primary_context_state(int device, unsigned* flags, int* active) {
  const Runtime* own = runtime();
  *flags = 0;
  *active = own == nullptr || own->has_context == nullptr || own->has_context(device) ? 1 : 0;
  return 0;
}

}  // namespace

const Runtime* runtime() {
  return programs_own;
}

void note_error(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last = error;
}

void run_out_of_memory(bool on) {
  out_of_memory = on;
}
void set_capturing(bool on) {
  is_capturing = on;
}
void set_answer_on_code(cudaError_t error) {
  answer_on_code = error;
}

}  // namespace mezzo_emulated

using namespace mezzo_emulated;

extern "C" __attribute__((visibility("default"))) void mezzo_emulated_set_runtime(
    const Runtime* functions) {
  programs_own = functions;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*)()) {
  note_error(answer_on_code);
  return answer_on_code;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const auto own = [&] {
    *memory = out_of_memory ? nullptr : allocate(bytes);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  };
  return ask(&Runtime::allocate, own, memory, bytes);
}
cudaError_t cudaFree(void* memory) {
  const auto own = [&] {
    release(memory);
    return cudaSuccess;
  };
  return ask(&Runtime::free, own, memory);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    default:
      return "emulated failure";
  }
}
cudaError_t cudaGetDevice(int* device) {
  const auto own = [&] {
    *device = 0;
    return cudaSuccess;
  };
  return ask(&Runtime::get_device, own, device);
}
cudaError_t cudaSetDevice(int device) {
  return ask(
      &Runtime::set_device, [] { return cudaSuccess; }, device);
}
cudaError_t cudaGetDeviceCount(int* count) {
  const auto own = [&] {
    *count = 1;
    return cudaSuccess;
  };
  return ask(&Runtime::device_count, own, count);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 3;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  bool capturing = is_capturing;
  const auto own = [] { return cudaSuccess; };
  const cudaError_t error =
      ask(&Runtime::stream_is_capturing, own, static_cast<void*>(stream), &capturing);
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return error;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  int number = *mode;
  const auto own = [] { return cudaSuccess; };
  const cudaError_t error = ask(&Runtime::exchange_capture_mode, own, &number);
  *mode = static_cast<cudaStreamCaptureMode>(number);
  return error;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  void* made = nullptr;
  const auto own = [&] {
    static char any;  // nothing is ever waited for
    made = &any;
    return cudaSuccess;
  };
  const cudaError_t error = ask(&Runtime::create_event, own, &made);
  *event = static_cast<cudaEvent_t>(made);
  return error;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return ask(
      &Runtime::destroy_event, [] { return cudaSuccess; }, static_cast<void*>(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return ask(
      &Runtime::record_event, [] { return cudaSuccess; }, static_cast<void*>(event),
      static_cast<void*>(stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return ask(
      &Runtime::query_event, [] { return cudaSuccess; }, static_cast<void*>(event));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return ask(
      &Runtime::wait_for_event, [] { return cudaSuccess; }, static_cast<void*>(stream),
      static_cast<void*>(event));
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(primary_context_state);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
