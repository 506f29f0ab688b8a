// Regions of images: pooling over boxes that lie anywhere between the pixels.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;

constexpr double kFarAway = 1e5;                              // pixels
constexpr std::int64_t kMostSamples = std::int64_t{1} << 24;  // per region

/// Four pixels and their weights: where a point between them reads.
struct Tap {
  std::int64_t pixels[4];
  float weights[4];
};

// Points more than a pixel outside count nothing; others outside read the border.
Tap tap_at(double y, double x, std::int64_t height, std::int64_t width) {
  Tap tap{};
  if (y < -1 || x < -1 || y > static_cast<double>(height) || x > static_cast<double>(width))
    return tap;
  const auto split = [](double at, std::int64_t size, std::int64_t* low, std::int64_t* high) {
    at = std::max(at, 0.0);
    *low = std::min(static_cast<std::int64_t>(at), size - 1);
    *high = std::min(*low + 1, size - 1);
    return *low == size - 1 ? 0.0 : at - static_cast<double>(*low);
  };
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  const double down = split(y, height, &top, &bottom);
  const double across = split(x, width, &left, &right);
  tap = {{top * width + left, top * width + right, bottom * width + left, bottom * width + right},
         {static_cast<float>((1 - down) * (1 - across)), static_cast<float>((1 - down) * across),
          static_cast<float>(down * (1 - across)), static_cast<float>(down * across)}};
  return tap;
}

/// One cell row or column of a region: where its samples are.
struct Spacing {
  double start, cell;
  std::int64_t samples;  // per cell
  double at(std::int64_t i, std::int64_t k) const {
    const double within = (static_cast<double>(k) + 0.5) / static_cast<double>(samples);
    return start + (static_cast<double>(i) + within) * cell;
  }
};

struct RegionPooling {
  std::int64_t rows, columns, sampling;
  double scale;
  bool is_aligned;  // pixel centres at halves; otherwise a region is at least one pixel large

  Spacing spacing(double from, double to, std::int64_t cells) const {
    const double offset = is_aligned ? 0.5 : 0;
    const double start = from * scale - offset;
    double size = to * scale - offset - start;
    if (!is_aligned) size = std::max(size, 1.0);
    const double cell = size / static_cast<double>(cells);
    if (!(std::fabs(start) < kFarAway && cell < kFarAway)) refuse("a region without bounds");
    const auto samples =
        sampling > 0 ? sampling : static_cast<std::int64_t>(std::ceil(std::max(cell, 0.0)));
    return {start, cell, samples};
  }
};

void pool_region(const RegionPooling& pooling, const float* box, const Tensor& image, float* out) {
  const std::int64_t height = image.size(1);
  const std::int64_t width = image.size(2);
  const Spacing across = pooling.spacing(box[0], box[2], pooling.columns);
  const Spacing down = pooling.spacing(box[1], box[3], pooling.rows);
  const auto samples = static_cast<double>(down.samples) * static_cast<double>(across.samples) *
                       static_cast<double>(pooling.rows) * static_cast<double>(pooling.columns);
  if (samples > static_cast<double>(kMostSamples)) refuse(samples, " samples in one region");
  std::vector<Tap> taps;
  for (std::int64_t row = 0; row < pooling.rows; ++row) {
    for (std::int64_t column = 0; column < pooling.columns; ++column) {
      for (std::int64_t i = 0; i < down.samples; ++i) {
        for (std::int64_t j = 0; j < across.samples; ++j)
          taps.push_back(tap_at(down.at(row, i), across.at(column, j), height, width));
      }
    }
  }
  const auto per_cell = static_cast<std::size_t>(down.samples * across.samples);
  if (per_cell == 0) return;  // an empty region is zero
  const auto* pixels = image.const_data_ptr<float>();
  for (std::int64_t channel = 0; channel < image.size(0); ++channel, pixels += height * width) {
    for (std::size_t at = 0; at < taps.size(); at += per_cell) {
      float sum = 0;
      for (std::size_t k = at; k < at + per_cell; ++k) {
        for (int corner = 0; corner < 4; ++corner)
          sum += taps[k].weights[corner] * pixels[taps[k].pixels[corner]];
      }
      *out++ = sum / static_cast<float>(per_cell);
    }
  }
}

Tensors region_align(const Call& c) {
  if (c.text("mode", "avg") != "avg") refuse("the largest value of a region");
  const Tensor x = c.in(0).to(at::kFloat).contiguous();
  const Tensor boxes = c.in(1).to(at::kFloat).contiguous();
  const std::vector<std::int64_t> images = c.list(2);
  if (x.dim() != 4 || x.size(2) < 1 || x.size(3) < 1) refuse("images without pixels");
  const auto count = static_cast<std::int64_t>(images.size());
  if (boxes.dim() != 2 || boxes.size(1) != 4 || boxes.size(0) != count)
    refuse("regions that are not four numbers and one image each");
  const char* old_default = c.opset() < 16 ? "output_half_pixel" : "half_pixel";
  const RegionPooling pooling{
      c.integer("output_height", 1), c.integer("output_width", 1), c.integer("sampling_ratio", 0),
      c.number("spatial_scale", 1.0),
      c.text("coordinate_transformation_mode", old_default) == "half_pixel"};
  Tensor y = at::zeros({boxes.size(0), x.size(1), pooling.rows, pooling.columns}, x.options());
  const std::int64_t size = x.size(1) * pooling.rows * pooling.columns;
  for (std::int64_t i = 0; i < boxes.size(0); ++i) {
    pool_region(pooling, boxes.const_data_ptr<float>() + 4 * i,
                x[images[static_cast<std::size_t>(i)]], y.data_ptr<float>() + i * size);
  }
  return {y};
}

// Sorted by name.
constexpr TorchOperator kRegionsOperators[] = {
    {"RoiAlign", region_align},
};

}  // namespace

std::span<const TorchOperator> region_operators() {
  return kRegionsOperators;
}

}  // namespace mezzo::convert
