#include "guard.h"

#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

#include "counts.h"
#include "device.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

thread_local int device_of_thread = 0;
thread_local std::int64_t streams_of_thread[kDevices] = {};
std::atomic<std::int64_t> streams_made{0};

int checked(int device) {
  TORCH_CHECK(device >= 0 && device < kDevices, "pretend CUDA: invalid device ordinal ", device);
  return device;
}

int index_of(const c10::Device& device) {
  return device.has_index() ? checked(device.index()) : device_of_thread;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const int before = std::exchange(device_of_thread, index_of(device));
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(before)};
  }
  c10::Device getDevice() const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(device_of_thread)};
  }
  void setDevice(c10::Device device) const override { device_of_thread = index_of(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) device_of_thread = device.index();
  }

  c10::Stream getStream(c10::Device device) const override {
    return stream_of(current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of({index_of(device), 0});
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_of(make_stream(index_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_of(make_stream(index_of(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const StreamName name = name_of(stream);
    const std::int64_t before = std::exchange(streams_of_thread[name.device], name.id);
    return stream_of({name.device, before});
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return handle_of(name_of(stream));
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Mark*>(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "pretend CUDA: an event of device ", static_cast<int>(device),
                " is recorded on a stream of device ", static_cast<int>(stream.device_index()));
    const Mark mark = Streams::all().mark(name_of(stream));
    if (*event == nullptr) {
      *event = new Mark(mark);
    } else {
      *static_cast<Mark*>(*event) = mark;
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    Streams::all().wait_on_stream(name_of(stream), *static_cast<Mark*>(event));
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    Streams::all().refuse_in_capture("an event is queried");
    const Mark& mark = *static_cast<Mark*>(event);
    TORCH_CHECK(!mark.in_capture,
                "pretend CUDA: an event that was recorded in a capture is queried");
    return Streams::all().passed(mark);
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    Streams::all().refuse_in_capture("an event is waited for");
    const Mark& mark = *static_cast<Mark*>(event);
    TORCH_CHECK(!mark.in_capture,
                "pretend CUDA: an event that was recorded in a capture is waited for");
    if (!Streams::all().has_passed(mark)) count_wait(Wait::kEvent, "event");
    Streams::all().run_to(mark);
  }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 1.0; }

  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  bool queryStream(const c10::Stream& stream) const override {
    Streams::all().refuse_in_capture("a stream is queried");
    return Streams::all().passed(Streams::all().mark(name_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Streams::all().refuse_in_capture("a stream is waited for");
    count_wait(Wait::kStream, "stream");
    Streams::all().run_stream(name_of(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    Streams::all().refuse_in_capture("a device is waited for");
    count_wait(Wait::kDevice, "device");
    Streams::all().run_device(device < 0 ? device_of_thread : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) Memory::all().record_stream(data.get(), name_of(stream));
  }
};

const c10::impl::DeviceGuardImplRegistrar registers_guard(c10::kCUDA, new Guard);

}  // namespace

int current_device() {
  return device_of_thread;
}

void set_current_device(int device) {
  device_of_thread = checked(device);
}

StreamName current_stream(int device) {
  return {checked(device), streams_of_thread[device]};
}

c10::Stream stream_of(const StreamName& name) {
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(name.device));
  return c10::Stream(c10::Stream::UNSAFE, device, name.id);
}

StreamName name_of(const c10::Stream& stream) {
  return {checked(stream.device_index()), stream.id()};
}

// Numbers say the device, too, so that a handle is nobody else's.
StreamName make_stream(int device) {
  return {device, ++streams_made * kDevices + device};
}

void* handle_of(const StreamName& name) {
  return reinterpret_cast<void*>(name.id);
}

StreamName stream_of_handle(void* handle) {
  const auto id = reinterpret_cast<std::int64_t>(handle);
  if (id == 0) return {device_of_thread, 0};
  return {static_cast<int>(id % kDevices), id};
}

at::Device device(int index) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(checked(index))};
}

c10::Stream new_stream(int device) {
  return stream_of(make_stream(device));
}

void seed(std::uint64_t number) {
  Streams::all().seed(number);
}

void finish() {
  Streams::all().run_all();
}

bool is_capturing(c10::Stream stream) {
  return Streams::all().capture_of(name_of(stream)) != nullptr;
}

struct Graph::Work {
  std::shared_ptr<Capture> capture = std::make_shared<Capture>();
};

Graph::Graph() : work_(std::make_shared<Work>()) {}
Graph::~Graph() = default;

void Graph::begin(c10::Stream stream) {
  Streams::all().begin(name_of(stream), work_->capture);
}

void Graph::end() {
  Streams::all().end(work_->capture->origin);
}

void Graph::replay() {
  const StreamName name = current_stream(work_->capture->origin.device);
  // One launch, whose parts run in the order of the capture.
  Streams::all().queue(name, [capture = work_->capture] {
    for (const Task& task : capture->tasks) task();
  });
}

}  // namespace mezzo::pretend
