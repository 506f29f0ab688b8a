// Arrays on the device that the kernel tests run on: a GPU, or the emulation of one.
#pragma once

#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <memory>

#include "kernels/cuda/interface.h"
#include "kernels/multi_tensor.h"
#include "kernels/reference.h"

namespace mezzo::kernels::cuda::testing_support {

using namespace kernels::testing_support;

/// The functions under test; null, with the reason, where there is no device.
const Interface* functions();
const std::string& why_not();

inline void expect_done(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

/// Memory on the device with a copy of host bytes in it; `offset` bytes are left free before them,
/// to try addresses that wide loads do not take.
class DeviceBytes {
 public:
  DeviceBytes(const void* from, std::size_t bytes, std::size_t offset = 0)
      : bytes_(bytes), offset_(offset) {
    expect_done(cudaMalloc(&memory_, bytes + offset));
    if (bytes > 0) expect_done(cudaMemcpy(data(), from, bytes, cudaMemcpyHostToDevice));
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(DeviceBytes&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_),
        offset_(other.offset_) {}
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* data() const { return static_cast<unsigned char*>(memory_) + offset_; }
  void read(void* to) const {
    if (bytes_ > 0) expect_done(cudaMemcpy(to, data(), bytes_, cudaMemcpyDeviceToHost));
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_, offset_;
};

/// A number on the device.
template <typename T>
class DeviceNumber {
 public:
  explicit DeviceNumber(T value = T()) : bytes_(&value, sizeof(T)) {}
  T* data() const { return static_cast<T*>(bytes_.data()); }
  T value() const {
    T value;
    bytes_.read(&value);
    return value;
  }

 private:
  DeviceBytes bytes_;
};

/// An Array on the device.
class DeviceArray {
 public:
  explicit DeviceArray(const Array& array, std::int64_t elements_before = 0)
      : host_(array),
        bytes_(array.data(), static_cast<std::size_t>(array.count()) * size_of(array.dtype()),
               static_cast<std::size_t>(elements_before) * size_of(array.dtype())) {}
  void* data() const { return bytes_.data(); }
  Input in() const { return {data(), host_.dtype(), host_.count()}; }
  Output out() const { return {data(), host_.dtype(), host_.count()}; }
  Array read() const {
    Array result(host_.dtype(), host_.count());
    bytes_.read(result.data());
    return result;
  }

 private:
  Array host_;
  DeviceBytes bytes_;
};

struct FreeList {
  void operator()(List* list) const { functions()->free_list(list); }
};

/// Skips, visibly, where there is no device.
class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (functions() == nullptr) GTEST_SKIP() << why_not();
    list_.reset(functions()->make_list(0));
  }
  const Interface& cuda() const { return *functions(); }
  List* list() const { return list_.get(); }
  void expect(bool done) const { ASSERT_TRUE(done) << cuda().error(); }

 private:
  std::unique_ptr<List, FreeList> list_;
};

/// Sizes around those of a group, a block and a chunk.
constexpr std::int64_t kDeviceSizes[] = {0, 1, 3, 17, 1025, 8191, 8192, 20001};

}  // namespace mezzo::kernels::cuda::testing_support
