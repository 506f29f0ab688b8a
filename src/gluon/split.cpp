#include "core/torch.h"

#include <ATen/ops/slice.h>

#include "mezzo/gluon.h"
#include "scaling/to_device.h"

namespace mezzo::gluon {

std::vector<at::Tensor> split_and_load(const at::Tensor& data,
                                       const std::vector<at::Device>& devices,
                                       std::int64_t batch_axis, bool even_split) {
  constexpr const char* kSplit = "split_and_load";
  const auto count = static_cast<std::int64_t>(devices.size());
  if (count == 0) raise<ConfigError>(kSplit, "there are no devices");
  if (batch_axis < -data.dim() || batch_axis >= data.dim()) {
    raise<ConfigError>(kSplit, "batch_axis is ", batch_axis, " for data of ", data.sizes());
  }
  const std::int64_t size = data.size(batch_axis);
  if (size < count || (even_split && size % count != 0)) {
    raise<ConfigError>(kSplit, "data of ", data.sizes(), " does not split into ", count,
                       " parts along axis ", batch_axis, "; expected ",
                       size < count ? "at least one row for each device"
                                    : "a multiple of them, or even_split = false");
  }
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + size / count + (i < size % count ? 1 : 0);
    parts.push_back(scaling::to_device(at::slice(data, batch_axis, begin, end),
                                       devices[static_cast<std::size_t>(i)]));
    begin = end;
  }
  return parts;
}

}  // namespace mezzo::gluon
