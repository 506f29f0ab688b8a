#include "casting/stream_order.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "bridge/device.h"

namespace mezzo::casting {
namespace {

enum class Answer : signed char { kUnknown, kNo, kYes };

// Devices of a kind that LibTorch does not know may have no events, and then have no streams to
// order.
bool records_events(const at::Device& device) {
  try {
    const c10::impl::VirtualGuardImpl guard(device.type());
    c10::Event event(device.type());
    event.record(guard.getStream(device));
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

bool orders_streams(const at::Device& device) {
  if (device.is_cuda() || device.is_hip() || device.is_xpu()) return true;
  static std::array<std::atomic<Answer>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> known{};
  std::atomic<Answer>& answer = known[static_cast<std::size_t>(device.type())];
  if (answer.load(std::memory_order_relaxed) == Answer::kUnknown)
    answer.store(records_events(device) ? Answer::kYes : Answer::kNo, std::memory_order_relaxed);
  return answer.load(std::memory_order_relaxed) == Answer::kYes;
}

bool holds(const c10::SmallVectorImpl<c10::Stream>& streams, const c10::Stream& stream) {
  return std::ranges::find(streams, stream) != streams.end();
}

}  // namespace

QueuePlace QueuePlace::of_streams(const at::Device& device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type()) || !orders_streams(device)) return {};
  QueuePlace place;
  place.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  place.capture = bridge::current_capture(device);
  return place;
}

FillEnd::FillEnd(const QueuePlace& place)
    : stream_(place.stream.value()), event_(stream_.device_type()) {
  event_.record(stream_);
}

void FillEnd::move_to(const QueuePlace& place) {
  stream_ = place.stream.value();
  waiting_.clear();
  event_.record(stream_);
}

void FillEnd::comes_before(const QueuePlace& reader) {
  if (!reader.has_streams() || *reader.stream == stream_ || holds(waiting_, *reader.stream)) return;
  event_.block(*reader.stream);
  waiting_.push_back(*reader.stream);
}

std::shared_ptr<FillEnd> FillEnds::of(const at::Device& device) {
  const auto found = std::ranges::find(ends_, device, [](const auto& end) { return end.first; });
  if (found != ends_.end()) return found->second;
  const QueuePlace place = QueuePlace::of(device);
  auto end = place.has_streams() ? std::make_shared<FillEnd>(place) : nullptr;
  return ends_.emplace_back(device, std::move(end)).second;
}

void MemoryUsers::begin(const QueuePlace& place) {
  known_.clear();
  if (place.has_streams()) known_.push_back(*place.stream);
}

void MemoryUsers::add(const QueuePlace& place, const at::Tensor& memory) {
  if (!place.has_streams() || holds(known_, *place.stream)) return;
  const c10::impl::VirtualGuardImpl guard(memory.device().type());
  guard.recordDataPtrOnStream(memory.storage().data_ptr(), *place.stream);
  known_.push_back(*place.stream);
}

}  // namespace mezzo::casting
