#include "imagenet/data/crop.h"

#include <algorithm>
#include <cmath>

namespace examples::imagenet {

Rectangle random_crop(int width, int height, const RandomCrop& how, Random& random) {
  constexpr int kTries = 10;
  const double area = static_cast<double>(width) * height;
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.uniform(how.least_area, how.most_area);
    const double ratio =
        std::exp(random.uniform(std::log(how.least_ratio), std::log(how.most_ratio)));
    const auto w = static_cast<int>(std::lround(std::sqrt(wanted * ratio)));
    const auto h = static_cast<int>(std::lround(std::sqrt(wanted / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const auto left = random.below(static_cast<std::uint64_t>(width - w) + 1);
    const auto top = random.below(static_cast<std::uint64_t>(height - h) + 1);
    return {static_cast<double>(left), static_cast<double>(top), static_cast<double>(w),
            static_cast<double>(h)};
  }
  double w = width, h = height;
  w = std::min(w, std::max(1., std::round(h * how.most_ratio)));
  h = std::min(h, std::max(1., std::round(w / how.least_ratio)));
  return {std::floor((width - w) / 2), std::floor((height - h) / 2), w, h};
}

Rectangle centre_crop(int width, int height, double share) {
  const double side = share * std::min(width, height);
  return {(width - side) / 2, (height - side) / 2, side, side};
}

}  // namespace examples::imagenet
