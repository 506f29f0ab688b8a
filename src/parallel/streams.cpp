#include "parallel/streams.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace mezzo::parallel {
namespace {

void keep_for(const c10::Stream& stream, const at::Tensor& tensor) {
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace

std::optional<c10::Stream> current_stream_of(const at::Device& device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void keep_for_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || !tensor.has_storage()) return;
  keep_for(*current_stream_of(tensor.device()), tensor);
}

void StreamSet::add_current(const at::Device& device) {
  const std::optional<c10::Stream> current = current_stream_of(device);
  if (current && std::ranges::find(streams_, *current) == streams_.end()) {
    streams_.push_back(*current);
  }
}

void StreamSet::join_at_current(const at::Tensor& memory) const {
  const std::optional<c10::Stream> current = current_stream_of(memory.device());
  if (!current) return;
  for (const c10::Stream& stream : streams_) {
    keep_for(stream, memory);
    if (stream == *current) continue;
    c10::Event written(stream.device_type());
    written.record(stream);
    written.block(*current);
  }
  keep_for(*current, memory);
}

}  // namespace mezzo::parallel
