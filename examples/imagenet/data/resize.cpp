#include "imagenet/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace examples::imagenet {
namespace {

constexpr int kBits = 12;
constexpr int kOne = 1 << kBits, kHalf = kOne / 2;
constexpr int kChannels = 3;

/// Which pixels of a line a new pixel takes, and how much of each.
struct Taps {
  int first;
  std::vector<std::int32_t> weights;  // sum to kOne
};

/// The taps of `count` new pixels over [begin, begin + length) of a line of `size` pixels. What
/// lies outside is not looked at, as if the part had been cut out before.
std::vector<Taps> taps_of(double begin, double length, int count, int size) {
  const int least = std::clamp(static_cast<int>(std::floor(begin)), 0, size - 1);
  const int most = std::clamp(static_cast<int>(std::ceil(begin + length)), least + 1, size);
  const double step = length / count;
  const double reach = std::max(step, 1.);
  std::vector<Taps> all;
  all.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const double centre = begin + (i + 0.5) * step;
    const int first =
        std::clamp(static_cast<int>(std::floor(centre - reach + 0.5)), least, most - 1);
    const int end = std::clamp(static_cast<int>(std::floor(centre + reach + 0.5)), first + 1, most);
    std::vector<double> exact;
    double sum = 0;
    for (int x = first; x < end; ++x) {
      const double weight = std::max(0., 1 - std::abs(x + 0.5 - centre) / reach);
      exact.push_back(weight);
      sum += weight;
    }
    Taps taps{first, {}};
    int left = kOne;
    for (const double weight : exact) {
      taps.weights.push_back(static_cast<std::int32_t>(std::lround(weight / sum * kOne)));
      left -= taps.weights.back();
    }
    *std::ranges::max_element(taps.weights) += left;
    all.push_back(std::move(taps));
  }
  return all;
}

/// One new row of all columns that are needed: along the rows, where neighbours lie side by side.
void blend_rows(const Pixels& image, const Taps& taps, std::size_t from, std::size_t bytes,
                std::vector<std::int32_t>& sums, std::vector<std::uint8_t>& row) {
  std::fill_n(sums.begin(), bytes, kHalf);
  const std::size_t stride = static_cast<std::size_t>(image.width) * kChannels;
  for (std::size_t k = 0; k < taps.weights.size(); ++k) {
    const std::int32_t weight = taps.weights[k];
    const std::uint8_t* source =
        image.rgb.data() + (static_cast<std::size_t>(taps.first) + k) * stride + from;
    for (std::size_t i = 0; i < bytes; ++i) sums[i] += weight * source[i];
  }
  for (std::size_t i = 0; i < bytes; ++i) row[i] = static_cast<std::uint8_t>(sums[i] >> kBits);
}

}  // namespace

void resize(const Pixels& image, const Rectangle& part, int side, bool mirrored,
            std::uint8_t* into) {
  const std::vector<Taps> across = taps_of(part.left, part.width, side, image.width);
  const std::vector<Taps> down = taps_of(part.top, part.height, side, image.height);
  const int left = across.front().first;
  const int right = across.back().first + static_cast<int>(across.back().weights.size());
  const std::size_t bytes = static_cast<std::size_t>(right - left) * kChannels;
  std::vector<std::int32_t> sums(bytes);
  std::vector<std::uint8_t> row(bytes);
  for (int y = 0; y < side; ++y) {
    blend_rows(image, down[static_cast<std::size_t>(y)], static_cast<std::size_t>(left) * kChannels,
               bytes, sums, row);
    std::uint8_t* target = into + static_cast<std::size_t>(y) * side * kChannels;
    for (int x = 0; x < side; ++x) {
      const Taps& taps = across[static_cast<std::size_t>(mirrored ? side - 1 - x : x)];
      std::int32_t red = kHalf, green = kHalf, blue = kHalf;
      const std::uint8_t* source =
          row.data() + static_cast<std::size_t>(taps.first - left) * kChannels;
      for (const std::int32_t weight : taps.weights) {
        red += weight * source[0];
        green += weight * source[1];
        blue += weight * source[2];
        source += kChannels;
      }
      *target++ = static_cast<std::uint8_t>(red >> kBits);
      *target++ = static_cast<std::uint8_t>(green >> kBits);
      *target++ = static_cast<std::uint8_t>(blue >> kBits);
    }
  }
}

}  // namespace examples::imagenet
