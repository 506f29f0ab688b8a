#include "parallel/device_numbers.h"

#include "parallel/streams.h"

namespace mezzo::parallel {

DeviceNumbers::DeviceNumbers(const at::Tensor& numbers)
    : here_(numbers.detach().to(at::kCPU, at::kDouble, /*non_blocking=*/true, /*copy=*/true)) {
  if (const std::optional<c10::Stream> stream = current_stream_of(numbers.device())) {
    copied_.emplace(stream->device_type());
    copied_->record(*stream);
  }
}

bool DeviceNumbers::arrived() const {
  return !copied_ || copied_->query();
}

std::vector<double> DeviceNumbers::read() const {
  if (!arrived()) copied_->synchronize();
  const auto* const begin = here_.const_data_ptr<double>();
  return {begin, begin + here_.numel()};
}

}  // namespace mezzo::parallel
