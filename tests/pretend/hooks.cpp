#include "hooks.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "counts.h"
#include "generator.h"
#include "guard.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const int device = current_device();
    void* address = Memory::all().allocate(bytes, current_stream(device));
    return {address, address, &give_back,
            c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "pretend CUDA: an allocator was asked to copy");
  }

 private:
  static void give_back(void* address) { Memory::all().free(address); }
};

struct PinnedPieces {
  std::map<const char*, std::pair<std::size_t, std::shared_ptr<void>>> all;
};

PinnedPieces& pinned() {
  static auto* pieces = new PinnedPieces;
  return *pieces;
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    Streams::all().refuse_in_capture("page-locked memory is allocated");
    const std::size_t size = (bytes + 511) / 512 * 512;
    if (size == 0) return {nullptr, nullptr, &give_back, c10::kCPU};
    void* address = std::aligned_alloc(512, size);
    const std::lock_guard lock(device_mutex());
    pinned().all[static_cast<const char*>(address)] = {size,
                                                       std::shared_ptr<void>(address, std::free)};
    return {address, address, &give_back, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void give_back(void* address) {
    const std::lock_guard lock(device_mutex());
    pinned().all.erase(static_cast<const char*>(address));
  }
};

DeviceAllocator device_allocator;
PinnedAllocator pinned_allocator;

int index_or_current(c10::DeviceIndex index) {
  return index < 0 ? current_device() : index;
}

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index_or_current(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(index_or_current(index));
  }
  c10::Device getDeviceFromPtr(void* address) const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(Memory::all().device_of(address))};
  }
  bool isPinnedPtr(const void* address) const override { return pinned_piece(address) != nullptr; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const int before = current_device();
    set_current_device(device);
    return static_cast<c10::DeviceIndex>(before);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  c10::DeviceIndex current_device() const override {
    return static_cast<c10::DeviceIndex>(pretend::current_device());
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  at::Allocator* getCUDADeviceAllocator() const override { return &device_allocator; }
  int getNumGPUs() const override { return kDevices; }
  long versionCUDART() const override { return 13000; }
  std::string showConfig() const override { return "a pretend device"; }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    Streams::all().refuse_in_capture("a device is waited for");
    count_wait(Wait::kDevice, "device");
    Streams::all().run_device(index_or_current(device));
  }
};

struct RegistersAllocator {
  RegistersAllocator() { c10::SetAllocator(c10::kCUDA, &device_allocator, /*priority=*/100); }
};
const RegistersAllocator registers_allocator;

}  // namespace

std::shared_ptr<void> pinned_piece(const void* address) {
  const std::lock_guard lock(device_mutex());
  auto& all = pinned().all;
  auto after = all.upper_bound(static_cast<const char*>(address));
  if (after == all.begin()) return nullptr;
  const auto& [first, piece] = *std::prev(after);
  return static_cast<const char*>(address) < first + piece.first ? piece.second : nullptr;
}

}  // namespace mezzo::pretend

namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", mezzo::pretend::Hooks)
}  // namespace at
