// Fourier transforms, and what audio front ends put around them.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_ifft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

constexpr std::int64_t kMostWeights = std::int64_t{1} << 26;

// ONNX stores complex numbers as pairs along a last axis; an axis of one element is a real part.
Tensor signal_of(const Tensor& pairs) {
  if (pairs.dim() == 0 || (pairs.size(-1) != 1 && pairs.size(-1) != 2))
    refuse("a signal without a last axis of one (real) or two (complex)");
  return pairs.size(-1) == 1 ? pairs.squeeze(-1) : at::view_as_complex(pairs.contiguous());
}

Tensors fourier(const Call& c) {
  const Tensor& x = c.in(0);
  const bool names_axis = c.opset() < 20;
  std::int64_t axis = names_axis ? c.integer("axis", 1) : c.has(2) ? c.list(2).at(0) : -2;
  axis = wrapped(axis, x.dim());
  if (axis < 0 || axis >= x.dim() - 1) refuse("a transform along the axis ", axis);
  const bool inverse = c.integer("inverse", 0) != 0;
  const bool one_sided = c.integer("onesided", 0) != 0;
  const Tensor signal = signal_of(x);
  const auto length = c.has(1) ? std::optional(c.list(1).at(0)) : std::nullopt;
  if (!one_sided) {
    return {at::view_as_real(inverse ? at::fft_ifft(signal, length, axis)
                                     : at::fft_fft(signal, length, axis))};
  }
  if (inverse || signal.is_complex()) refuse("half of a spectrum that is not symmetric");
  return {at::view_as_real(at::fft_rfft(signal, length, axis))};
}

Tensors short_time_fourier(const Call& c) {
  const bool is_plain = c.in(0).dim() == 2;  // [batch, time], real
  const Tensor signal = is_plain ? c.in(0) : signal_of(c.in(0));
  const std::int64_t step = c.list(1).at(0);
  if (!c.has(2) && !c.has(3)) refuse("neither a window nor the length of a frame");
  const std::int64_t length = c.has(3) ? c.list(3).at(0) : c.in(2).size(0);
  if (step < 1 || length < 1 || length > signal.size(1))
    refuse("frames of ", length, " every ", step, " of ", signal.size(1));
  Tensor frames = signal.unfold(1, length, step);
  if (c.has(2)) {
    if (c.in(2).size(0) != length) refuse("a window that is not as long as the frames");
    frames = at::mul(frames, c.in(2));
  }
  if (c.integer("onesided", 1) == 0) return {at::view_as_real(at::fft_fft(frames))};
  if (signal.is_complex()) refuse("half of a spectrum that is not symmetric");
  return {at::view_as_real(at::fft_rfft(frames))};
}

// A sum of cosines over one period; symmetric windows end on the sample that periodic ones omit.
template <std::size_t kTerms>
Tensors cosine_window(const Call& c, const std::array<double, kTerms>& weights) {
  const std::int64_t size = c.list(0).at(0);
  if (size < 0) refuse("a window of ", size);
  const bool is_periodic = c.integer("periodic", 1) != 0;
  const auto period = static_cast<double>(std::max<std::int64_t>(is_periodic ? size : size - 1, 1));
  const Tensor phase = at::mul(at::arange(size, at::kDouble), 2 * std::numbers::pi / period);
  Tensor window = at::mul(phase, 0);
  for (std::size_t k = 0; k < kTerms; ++k) {
    const Tensor wave = at::cos(at::mul(phase, static_cast<double>(k)));
    window = at::add(window, at::mul(wave, weights[k]));
  }
  return {window};
}

Tensors hann_window(const Call& c) {
  return cosine_window(c, std::array{0.5, -0.5});
}

Tensors hamming_window(const Call& c) {
  return cosine_window(c, std::array{25.0 / 46, -21.0 / 46});
}

Tensors blackman_window(const Call& c) {
  return cosine_window(c, std::array{0.42, -0.5, 0.08});
}

double mel_of(double hertz) {
  return 2595 * std::log10(1 + hertz / 700);
}

double hertz_of(double mel) {
  return 700 * (std::pow(10.0, mel / 2595) - 1);
}

// Triangles over the bins of a spectrum, equally far apart on the mel scale.
Tensors mel_weights(const Call& c) {
  const std::int64_t mels = c.list(0).at(0);
  const std::int64_t length = c.list(1).at(0);
  const auto rate = static_cast<double>(c.list(2).at(0));
  const auto lowest = c.in(3).item<double>();
  const auto highest = c.in(4).item<double>();
  if (mels < 1 || length < 1 || length > kMostWeights / mels)
    refuse(mels, " bands of ", length, " samples");
  if (!(lowest >= 0 && lowest <= highest && highest <= rate))
    refuse("edges from ", lowest, " to ", highest, " at a rate of ", rate);
  if (rate == 0) refuse("a rate of 0");
  const std::int64_t bins = length / 2 + 1;
  const double low = mel_of(lowest);
  const double high = mel_of(highest);
  std::vector<std::int64_t> corners;
  for (std::int64_t i = 0; i < mels + 2; ++i) {
    const double mel = low + static_cast<double>(i) * (high - low) / static_cast<double>(mels + 2);
    corners.push_back(static_cast<std::int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz_of(mel) / rate)));
  }
  std::vector<double> weights(static_cast<std::size_t>(bins * mels), 0.0);
  const auto put = [&](std::int64_t bin, std::int64_t mel, double weight) {
    if (bin < 0 || bin >= bins) refuse("edges beyond half the rate");
    weights[static_cast<std::size_t>(bin * mels + mel)] = weight;
  };
  for (std::int64_t m = 0; m < mels; ++m) {
    const auto corner = [&](std::int64_t i) { return corners[static_cast<std::size_t>(m + i)]; };
    const auto rise = static_cast<double>(corner(1) - corner(0));
    const auto fall = static_cast<double>(corner(2) - corner(1));
    for (std::int64_t bin = corner(0); bin < corner(1); ++bin)
      put(bin, m, static_cast<double>(bin - corner(0)) / rise);
    put(corner(1), m, 1);
    for (std::int64_t bin = corner(1); bin < corner(2); ++bin)
      put(bin, m, static_cast<double>(corner(2) - bin) / fall);
  }
  return {
      at::from_blob(weights.data(), {bins, mels}, at::TensorOptions().dtype(at::kDouble)).clone()};
}

// Sorted by name.
constexpr TorchOperator kSpectraOperators[] = {
    {"BlackmanWindow", blackman_window}, {"DFT", fourier},
    {"HammingWindow", hamming_window},   {"HannWindow", hann_window},
    {"MelWeightMatrix", mel_weights},    {"STFT", short_time_fourier},
};

}  // namespace

std::span<const TorchOperator> spectrum_operators() {
  return kSpectraOperators;
}

}  // namespace mezzo::convert
