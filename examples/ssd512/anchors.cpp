#include "ssd512/anchors.h"

#include <torch/types.h>

#include <array>
#include <cmath>

namespace examples {

namespace {

struct MapAnchors {
  double smallest, next;  // side of the square anchor of this map, and of the next one
  double step;            // pixels between two places
  bool has_thirds;        // anchors of 1:3 and 3:1 beside those of 1:2 and 2:1
};

constexpr std::array<MapAnchors, 6> kMaps{{{51.2, 133.12, 16, false},
                                           {133.12, 215.04, 32, true},
                                           {215.04, 296.96, 64, true},
                                           {296.96, 378.88, 128, true},
                                           {378.88, 460.8, 256, false},
                                           {460.8, 542.72, 512, false}}};

}  // namespace

std::int64_t anchors_per_cell(std::size_t map) {
  return kMaps.at(map).has_thirds ? 6 : 4;
}

at::Tensor make_anchors(const std::vector<std::int64_t>& map_sizes) {
  std::vector<double> values;
  for (std::size_t m = 0; m < kMaps.size(); ++m) {
    const MapAnchors& map = kMaps[m];
    const double between = std::sqrt(map.smallest * map.next);
    std::vector<double> ratios{2, 0.5};
    if (map.has_thirds) ratios.insert(ratios.end(), {3, 1.0 / 3});
    for (std::int64_t row = 0; row < map_sizes.at(2 * m); ++row) {
      for (std::int64_t column = 0; column < map_sizes.at(2 * m + 1); ++column) {
        const double x = (static_cast<double>(column) + 0.5) * map.step;
        const double y = (static_cast<double>(row) + 0.5) * map.step;
        values.insert(values.end(), {x, y, map.smallest, map.smallest, x, y, between, between});
        for (const double ratio : ratios) {
          const double root = std::sqrt(ratio);
          values.insert(values.end(), {x, y, map.smallest * root, map.smallest / root});
        }
      }
    }
  }
  return torch::tensor(values, at::kDouble).to(at::kFloat).reshape({1, -1, 4});
}

std::vector<std::int64_t> map_sizes_for(std::int64_t data_shape) {
  // Four halvings lead to the first map; each, here and behind it, rounds up.
  std::int64_t side = data_shape;
  std::vector<std::int64_t> sizes;
  for (int halvings = 1; halvings < 10; ++halvings) {
    side = (side + 1) / 2;
    if (halvings >= 4) sizes.insert(sizes.end(), {side, side});
  }
  return sizes;
}

at::Tensor centre_to_corner(const at::Tensor& boxes) {
  const at::Tensor centre = boxes.slice(-1, 0, 2), half = boxes.slice(-1, 2, 4) / 2;
  return torch::cat({centre - half, centre + half}, -1);
}

at::Tensor corner_to_centre(const at::Tensor& boxes) {
  const at::Tensor first = boxes.slice(-1, 0, 2), size = boxes.slice(-1, 2, 4) - first;
  return torch::cat({first + size / 2, size}, -1);
}

at::Tensor box_iou(const at::Tensor& a, const at::Tensor& b) {
  const auto area = [](const at::Tensor& corners) {
    return (corners.slice(-1, 2, 4) - corners.slice(-1, 0, 2)).clamp_min(0).prod(-1);
  };
  const at::Tensor from = a.unsqueeze(1), with = b.unsqueeze(0);
  const at::Tensor shared =
      area(torch::cat({torch::maximum(from.slice(-1, 0, 2), with.slice(-1, 0, 2)),
                       torch::minimum(from.slice(-1, 2, 4), with.slice(-1, 2, 4))},
                      -1));
  const at::Tensor joint = area(from) + area(with) - shared;
  return torch::where(joint > 0, shared / joint, torch::zeros_like(joint));
}

}  // namespace examples
