#include "imagenet/train/normalize.h"

#include <torch/types.h>

#include <array>

namespace examples::imagenet {
namespace {

constexpr int kChannels = 3, kValues = 256;
// Mean and deviation of ImageNet's training images, in bytes.
constexpr std::array<double, kChannels> kMean{0.485 * 255, 0.456 * 255, 0.406 * 255};
constexpr std::array<double, kChannels> kDeviation{0.229 * 255, 0.224 * 255, 0.225 * 255};

using Table = std::array<std::array<float, kValues>, kChannels>;

const Table& table() {
  static const Table values = [] {
    Table made{};
    for (std::size_t c = 0; c < kChannels; ++c) {
      for (std::size_t v = 0; v < kValues; ++v) {
        made[c][v] = static_cast<float>((static_cast<double>(v) - kMean[c]) / kDeviation[c]);
      }
    }
    return made;
  }();
  return values;
}

at::Tensor on_processor(const at::Tensor& bytes, bool channels_last) {
  const std::int64_t images = bytes.size(0), side = bytes.size(1), pixels = side * side;
  at::Tensor result =
      torch::empty({images, kChannels, side, side},
                   torch::dtype(at::kFloat)
                       .memory_format(channels_last ? at::MemoryFormat::ChannelsLast
                                                    : at::MemoryFormat::Contiguous));
  const std::uint8_t* from = bytes.const_data_ptr<std::uint8_t>();
  float* to = result.mutable_data_ptr<float>();
  const Table& values = table();
  for (std::int64_t n = 0; n < images; ++n, from += kChannels * pixels, to += kChannels * pixels) {
    for (std::size_t c = 0; c < kChannels; ++c) {
      for (std::int64_t i = 0; i < pixels; ++i) {
        const auto place = kChannels * i + static_cast<std::int64_t>(c);
        to[channels_last ? place : static_cast<std::int64_t>(c) * pixels + i] =
            values[c][from[place]];
      }
    }
  }
  return result;
}

}  // namespace

at::Tensor normalized(const at::Tensor& bytes, bool channels_last) {
  const torch::NoGradGuard no_grad;
  if (bytes.is_cpu()) return on_processor(bytes, channels_last);
  const auto constant = [&](const std::array<double, kChannels>& values) {
    return torch::tensor(std::vector<float>(values.begin(), values.end()))
        .to(bytes.device(), /*non_blocking=*/true);
  };
  const at::Tensor rows = (bytes.to(at::kFloat) - constant(kMean)) / constant(kDeviation);
  const at::Tensor images = rows.permute({0, 3, 1, 2});
  return channels_last ? images : images.contiguous();
}

}  // namespace examples::imagenet
