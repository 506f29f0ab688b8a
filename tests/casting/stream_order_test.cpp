#include "casting/stream_order.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "bridge/device.h"

namespace mezzo::casting {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A guard of CUDA devices that has nothing behind it: it writes down what it is asked.
class NotedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  at::Device exchangeDevice(at::Device) const override { return getDevice(); }
  at::Device getDevice() const override { return {c10::DeviceType::CUDA, 0}; }
  void setDevice(at::Device) const override {}
  void uncheckedSetDevice(at::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(at::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = &calls;
    note("record", stream);
  }
  void block(void*, const c10::Stream& stream) const override { note("wait", stream); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream& stream) const override {
    note("use", stream);
  }

  c10::StreamId current = 0;
  mutable std::vector<std::string> calls;

 private:
  void note(const char* what, const c10::Stream& stream) const {
    calls.push_back(c10::str(what, ' ', stream.device_index(), '.', stream.id()));
  }
};

/// Streams 7 and 9 are captured, by one capture.
std::uint64_t capture_of(kernels::cuda::Stream stream) {
  const auto id = reinterpret_cast<std::intptr_t>(stream);
  return id == 7 || id == 9 ? 3 : 0;
}

struct StreamOrder : testing::Test {
  StreamOrder() {
    registered().store(&guard);
    functions.capture = capture_of;
    bridge::choose_kernels(at::kCUDA, &functions);
  }
  ~StreamOrder() override {
    bridge::choose_usual_kernels(at::kCUDA);
    registered().store(before);
  }
  static std::atomic<const c10::impl::DeviceGuardImplInterface*>& registered() {
    return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(at::kCUDA)];
  }
  QueuePlace at_stream(c10::StreamId id, c10::DeviceIndex device = 0) {
    guard.current = id;
    return QueuePlace::of({at::kCUDA, device});
  }
  std::vector<std::string> calls() { return std::exchange(guard.calls, {}); }

  NotedGuard guard;
  const c10::impl::DeviceGuardImplInterface* before = registered().load();
  kernels::cuda::Interface functions{};
};

TEST_F(StreamOrder, ProcessorsAndDevicesWithoutAGuardHaveNoStreams) {
  EXPECT_FALSE(QueuePlace::of(at::kCPU).has_streams());
  EXPECT_FALSE(QueuePlace::of(at::kMeta).has_streams());
  EXPECT_FALSE(QueuePlace::of({at::kPrivateUse1, 0}).has_streams());
  EXPECT_TRUE(at_stream(0).has_streams());
}

TEST_F(StreamOrder, APlaceKnowsTheCaptureOfItsStream) {
  EXPECT_EQ(at_stream(0).capture, 0U);
  EXPECT_EQ(at_stream(7).capture, 3U);
  EXPECT_EQ(at_stream(8).capture, 0U);
}

TEST_F(StreamOrder, AnotherStreamWaitsForTheFillOnce) {
  FillEnd end(at_stream(1));
  EXPECT_THAT(calls(), ElementsAre("record 0.1"));
  end.comes_before(at_stream(1));
  EXPECT_THAT(calls(), IsEmpty()) << "a stream keeps to its own order";
  end.comes_before(at_stream(2));
  end.comes_before(at_stream(4));
  EXPECT_THAT(calls(), ElementsAre("wait 0.2", "wait 0.4"));
  end.comes_before(at_stream(2));
  end.comes_before(at_stream(4));
  EXPECT_THAT(calls(), IsEmpty()) << "they have waited";
  end.move_to(at_stream(4));
  end.comes_before(at_stream(4));
  end.comes_before(at_stream(2));
  EXPECT_THAT(calls(), ElementsAre("record 0.4", "wait 0.2")) << "a new fill, a new wait";
}

TEST_F(StreamOrder, AnUpdateRecordsOneEventADevice) {
  FillEnds ends;
  EXPECT_EQ(ends.of(at::kCPU), nullptr);
  guard.current = 1;
  const auto first = ends.of({at::kCUDA, 0});
  const auto other = ends.of({at::kCUDA, 1});
  EXPECT_EQ(ends.of({at::kCUDA, 0}), first);
  EXPECT_NE(first, other);
  EXPECT_THAT(calls(), ElementsAre("record 0.1", "record 1.1"));
}

TEST_F(StreamOrder, TheAllocatorHearsOfEachOtherStreamOnce) {
  const at::Device device(at::kCUDA, 0);
  const at::Tensor memory = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device)),
      c10::DispatchKeySet(c10::DispatchKey::CUDA), caffe2::TypeMeta::Make<float>());
  MemoryUsers users;
  users.begin(at_stream(1));
  users.add(at_stream(1), memory);
  users.add(at_stream(2), memory);
  users.add(at_stream(2), memory);
  EXPECT_THAT(calls(), ElementsAre("use 0.2"));
  users.begin(at_stream(2));
  users.add(at_stream(1), memory);
  users.add(at_stream(2), memory);
  EXPECT_THAT(calls(), ElementsAre("use 0.1")) << "new memory, another owner";
}

}  // namespace
}  // namespace mezzo::casting
