// The boxes that SSD's predictions are relative to, and how predictions become boxes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace examples {

/// Anchors at each place of feature map `map`, 0 to 5.
std::int64_t anchors_per_cell(std::size_t map);

/// All anchors for six maps, given as height and width of each: [1, anchors, 4], centre, width and
/// height in pixels of the image.
at::Tensor make_anchors(const std::vector<std::int64_t>& map_sizes);

/// The sizes of the six maps for an image of this side.
std::vector<std::int64_t> map_sizes_for(std::int64_t data_shape);

/// Boxes by their corners (left, top, right, bottom) from centres, widths and heights, and back.
at::Tensor centre_to_corner(const at::Tensor& boxes);
at::Tensor corner_to_centre(const at::Tensor& boxes);

/// Shared area over joint area, of every box of `a` [N, 4] with every one of `b` [M, 4], given by
/// corners: [N, M].
at::Tensor box_iou(const at::Tensor& a, const at::Tensor& b);

}  // namespace examples
