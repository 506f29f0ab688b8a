#include "bridge/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace mezzo::bridge {
namespace {

using kernels::cuda::Stream;

/// The memory that lists hold on one type of device, by address.
class DeviceMemory {
 public:
  void set_type(c10::DeviceType type) { type_ = type; }

  void* allocate(std::size_t bytes, int device) {
    const c10::DeviceGuard guard(device_of(device));
    at::DataPtr memory = c10::GetAllocator(type_)->allocate(bytes);
    void* address = memory.get();
    if (address == nullptr) return nullptr;
    const c10::Stream stream = current_stream(device);
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(address, Held{std::move(memory), stream});
    return address;
  }

  // An allocator hands memory out again on the stream that it was allocated on: others that use it
  // must be made known.
  void free(void* memory, int device, Stream last) {
    const std::optional<Held> held = take(memory);
    if (!held || held->stream.native_handle() == last) return;
    const c10::DeviceGuard guard(device_of(device));
    c10::Stream user = current_stream(device);
    if (user.native_handle() != last) {
      user = c10::Stream(c10::Stream::UNSAFE, device_of(device),
                         static_cast<c10::StreamId>(reinterpret_cast<std::intptr_t>(last)));
    }
    c10::impl::VirtualGuardImpl(type_).recordDataPtrOnStream(held->memory, user);
  }

 private:
  struct Held {
    at::DataPtr memory;
    c10::Stream stream;
  };

  at::Device device_of(int index) const { return {type_, static_cast<c10::DeviceIndex>(index)}; }
  c10::Stream current_stream(int device) const {
    return c10::impl::VirtualGuardImpl(type_).getStream(device_of(device));
  }
  std::optional<Held> take(void* memory) {
    const std::lock_guard lock(mutex_);
    auto node = held_.extract(memory);
    return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
  }

  c10::DeviceType type_ = c10::DeviceType::CUDA;
  std::mutex mutex_;
  std::unordered_map<void*, Held> held_;
};

// Errors of LibTorch's must not pass through the library of kernels.
void* allocate(void* context, std::size_t bytes, int device, Stream) {
  try {
    return static_cast<DeviceMemory*>(context)->allocate(bytes, device);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void free(void* context, void* memory, int device, Stream last) {
  try {
    static_cast<DeviceMemory*>(context)->free(memory, device, last);
  } catch (const std::exception&) {  // at the end of a program the device may be gone
  }
}

struct OfType {
  DeviceMemory memory;
  kernels::cuda::Memory functions;
};
using OfTypes = std::array<OfType, c10::COMPILE_TIME_MAX_DEVICE_TYPES>;

OfTypes& of_types() {
  // Never given back: lists of static objects outlive what is.
  static OfTypes& all = [&]() -> OfTypes& {
    auto* made = new OfTypes;
    for (std::size_t type = 0; type < made->size(); ++type) {
      OfType& of_type = (*made)[type];
      of_type.memory.set_type(static_cast<c10::DeviceType>(type));
      of_type.functions = {&of_type.memory, allocate, free};
    }
    return *made;
  }();
  return all;
}

}  // namespace

const kernels::cuda::Memory* memory_of(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) return nullptr;
  return &of_types()[static_cast<std::size_t>(type)].functions;
}

}  // namespace mezzo::bridge
