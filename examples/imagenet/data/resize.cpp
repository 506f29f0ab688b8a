#include "imagenet/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace examples::imagenet {
namespace {

constexpr int kBits = 12;
constexpr int kOne = 1 << kBits, kHalf = kOne / 2;
constexpr int kChannels = 3;
constexpr int kBlock = 16;  // bytes of a row that are summed together

/// The pixels of a line that each new pixel takes, and how much of each. All take as many, an even
/// number, since vectors take two at a time and branches should not vary: the last have weight 0.
struct Axis {
  std::vector<int> first;
  std::vector<std::int16_t> weights;  // `count` for each, whose sum is kOne
  int count = 0;
  int left = 0, right = 0;  // the pixels that have a weight

  const std::int16_t* weights_of(int i) const {
    return weights.data() + static_cast<std::ptrdiff_t>(i) * count;
  }
};

/// The taps of `count` new pixels over [begin, begin + length) of a line of `size` pixels. Pixels
/// outside are not looked at, as if the part had been cut out before.
Axis axis_of(double begin, double length, int count, int size) {
  const int least = std::clamp(static_cast<int>(std::floor(begin)), 0, size - 1);
  const int most = std::clamp(static_cast<int>(std::ceil(begin + length)), least + 1, size);
  const double step = length / count;
  const double reach = std::max(step, 1.);
  const auto begin_of = [&](double centre) {
    return std::clamp(static_cast<int>(std::floor(centre - reach + 0.5)), least, most - 1);
  };
  const auto end_of = [&](double centre) {
    return std::clamp(static_cast<int>(std::floor(centre + reach + 0.5)), begin_of(centre) + 1,
                      most);
  };
  Axis axis;
  for (int i = 0; i < count; ++i) {
    const double centre = begin + (i + 0.5) * step;
    axis.first.push_back(begin_of(centre));
    axis.right = std::max(axis.right, end_of(centre));
    axis.count = std::max(axis.count, end_of(centre) - begin_of(centre));
  }
  axis.left = axis.first.front();
  axis.count += axis.count % 2;
  axis.weights.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(axis.count));
  std::vector<double> exact;
  for (int i = 0; i < count; ++i) {
    const double centre = begin + (i + 0.5) * step;
    exact.clear();
    for (int x = begin_of(centre); x < end_of(centre); ++x)
      exact.push_back(std::max(0., 1 - std::abs(x + 0.5 - centre) / reach));
    const double sum = std::accumulate(exact.begin(), exact.end(), 0.);
    std::int16_t* weights = axis.weights.data() + static_cast<std::ptrdiff_t>(i) * axis.count;
    int left = kOne;
    for (std::size_t k = 0; k < exact.size(); ++k) {
      weights[k] = static_cast<std::int16_t>(std::lround(exact[k] / sum * kOne));
      left -= weights[k];
    }
    std::int16_t& largest = *std::max_element(weights, weights + exact.size());
    largest = static_cast<std::int16_t>(largest + left);
  }
  return axis;
}

/// Sums of bytes times weights for 16 bytes, and for one pixel. All versions give the same bytes.
#ifdef __SSE2__

__m128i two_weights(const std::int16_t* weights) {
  std::int32_t both = 0;
  std::memcpy(&both, weights, sizeof both);
  return _mm_set1_epi32(both);
}

/// Two lines of bytes in pairs: multiplied and added up by one instruction.
void blend_block(const std::uint8_t* const* lines, const std::int16_t* weights, int count,
                 std::uint8_t* into) {
  const __m128i zero = _mm_setzero_si128();
  __m128i sums[4];
  for (__m128i& sum : sums) sum = _mm_set1_epi32(kHalf);
  for (int k = 0; k < count; k += 2) {
    const __m128i both = two_weights(weights + k);
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[k]));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[k + 1]));
    const __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
    const __m128i pairs[4] = {_mm_unpacklo_epi8(low, zero), _mm_unpackhi_epi8(low, zero),
                              _mm_unpacklo_epi8(high, zero), _mm_unpackhi_epi8(high, zero)};
    for (int i = 0; i < 4; ++i) sums[i] = _mm_add_epi32(sums[i], _mm_madd_epi16(pairs[i], both));
  }
  for (__m128i& sum : sums) sum = _mm_srai_epi32(sum, kBits);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(into),
      _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3])));
}

void blend_pixel(const std::uint8_t* source, const std::int16_t* weights, int count,
                 std::uint8_t* into) {
  const __m128i zero = _mm_setzero_si128();
  const auto four_bytes = [](const std::uint8_t* from) {
    std::int32_t four = 0;
    std::memcpy(&four, from, sizeof four);
    return _mm_cvtsi32_si128(four);
  };
  __m128i sum = _mm_set1_epi32(kHalf);
  for (int k = 0; k < count; k += 2, source += std::ptrdiff_t{2} * kChannels) {
    const __m128i pairs = _mm_unpacklo_epi8(four_bytes(source), four_bytes(source + kChannels));
    sum = _mm_add_epi32(sum,
                        _mm_madd_epi16(_mm_unpacklo_epi8(pairs, zero), two_weights(weights + k)));
  }
  sum = _mm_srai_epi32(sum, kBits);
  sum = _mm_packs_epi32(sum, sum);
  const std::int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
  std::memcpy(into, &four, kChannels);
}

#else

void blend_block(const std::uint8_t* const* lines, const std::int16_t* weights, int count,
                 std::uint8_t* into) {
  std::int32_t sums[kBlock];
  std::fill_n(sums, kBlock, kHalf);
  for (int k = 0; k < count; ++k) {
    for (int i = 0; i < kBlock; ++i) sums[i] += std::int32_t{weights[k]} * lines[k][i];
  }
  for (int i = 0; i < kBlock; ++i) into[i] = static_cast<std::uint8_t>(sums[i] >> kBits);
}

void blend_pixel(const std::uint8_t* source, const std::int16_t* weights, int count,
                 std::uint8_t* into) {
  for (int c = 0; c < kChannels; ++c) {
    std::int32_t sum = kHalf;
    for (int k = 0; k < count; ++k)
      sum += std::int32_t{weights[k]} * source[static_cast<std::ptrdiff_t>(k) * kChannels + c];
    into[c] = static_cast<std::uint8_t>(sum >> kBits);
  }
}

#endif

/// One new row of all columns that are needed: along the rows, where neighbours lie side by side.
class RowBlender {
 public:
  RowBlender(const Pixels& image, std::size_t from, std::size_t bytes)
      : image_(image),
        from_(from),
        bytes_(bytes),
        stride_(static_cast<std::size_t>(image.width) * kChannels) {}

  /// `row` takes a multiple of kBlock bytes.
  void blend(int first, int count, const std::int16_t* weights, std::uint8_t* row) {
    lines_.clear();
    for (int k = 0; k < count; ++k) {
      const int y = std::min(first + k, image_.height - 1);  // where the weight is 0
      lines_.push_back(image_.rgb.data() + static_cast<std::size_t>(y) * stride_ + from_);
    }
    std::size_t x = 0;
    for (; x + kBlock <= bytes_; x += kBlock) {
      blend_block(lines_.data(), weights, count, row + x);
      for (const std::uint8_t*& line : lines_) line += kBlock;
    }
    if (x == bytes_) return;
    // The last bytes of an image have no block behind them to be read.
    rest_.assign(lines_.size() * kBlock, 0);
    for (std::size_t k = 0; k < lines_.size(); ++k) {
      std::copy_n(lines_[k], bytes_ - x, rest_.data() + k * kBlock);
      lines_[k] = rest_.data() + k * kBlock;
    }
    blend_block(lines_.data(), weights, count, row + x);
  }

 private:
  const Pixels& image_;
  std::size_t from_, bytes_, stride_;
  std::vector<const std::uint8_t*> lines_;
  std::vector<std::uint8_t> rest_;
};

}  // namespace

void resize(const Pixels& image, const Rectangle& part, int side, bool mirrored,
            std::uint8_t* into) {
  const Axis across = axis_of(part.left, part.width, side, image.width);
  const Axis down = axis_of(part.top, part.height, side, image.height);
  const std::size_t bytes = static_cast<std::size_t>(across.right - across.left) * kChannels;
  RowBlender rows(image, static_cast<std::size_t>(across.left) * kChannels, bytes);
  // Behind it lie pixels of weight 0.
  const std::size_t behind = static_cast<std::size_t>(across.count + 1) * kChannels;
  std::vector<std::uint8_t> row(bytes + kBlock + behind);
  for (int y = 0; y < side; ++y) {
    rows.blend(down.first[static_cast<std::size_t>(y)], down.count, down.weights_of(y), row.data());
    std::uint8_t* target = into + static_cast<std::size_t>(y) * side * kChannels;
    for (int x = 0; x < side; ++x, target += kChannels) {
      const int from = mirrored ? side - 1 - x : x;
      const int first = across.first[static_cast<std::size_t>(from)] - across.left;
      blend_pixel(row.data() + static_cast<std::ptrdiff_t>(first) * kChannels,
                  across.weights_of(from), across.count, target);
    }
  }
}

}  // namespace examples::imagenet
