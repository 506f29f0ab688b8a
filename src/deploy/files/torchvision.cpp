#include "deploy/files/torchvision.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/torch.h"

namespace mezzo::deploy {
namespace {

/// The boxes that no better one overlaps by more than the threshold, best first.
at::Tensor kept_boxes(const at::Tensor& dets, const at::Tensor& scores, double iou_threshold) {
  const at::Tensor boxes = dets.to(at::kDouble).contiguous();
  const at::Tensor order = std::get<1>(scores.sort(/*stable=*/true, 0, /*descending=*/true));
  const auto box = boxes.accessor<double, 2>();
  const auto place = order.accessor<std::int64_t, 1>();
  const auto area = [&](std::int64_t i) {
    return (box[i][2] - box[i][0]) * (box[i][3] - box[i][1]);
  };
  std::vector<std::int64_t> kept;
  for (std::int64_t n = 0; n < boxes.size(0); ++n) {
    const std::int64_t i = place[n];
    const bool overlaps = std::any_of(kept.begin(), kept.end(), [&](std::int64_t j) {
      const double width = std::min(box[i][2], box[j][2]) - std::max(box[i][0], box[j][0]);
      const double height = std::min(box[i][3], box[j][3]) - std::max(box[i][1], box[j][1]);
      const double shared = std::max(width, 0.0) * std::max(height, 0.0);
      return shared > iou_threshold * (area(i) + area(j) - shared);
    });
    if (!overlaps) kept.push_back(i);
  }
  return at::tensor(kept, at::kLong);
}

/// An image's value between its pixels; zero from one pixel outside on.
double value_between(const at::TensorAccessor<double, 2>& image, double y, double x) {
  const std::int64_t height = image.size(0), width = image.size(1);
  const auto rows = static_cast<double>(height), columns = static_cast<double>(width);
  if (y < -1 || y > rows || x < -1 || x > columns) return 0;
  y = std::clamp(y, 0.0, rows - 1);
  x = std::clamp(x, 0.0, columns - 1);
  const auto top = static_cast<std::int64_t>(y), left = static_cast<std::int64_t>(x);
  const std::int64_t below = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const double down = y - static_cast<double>(top), across = x - static_cast<double>(left);
  return (1 - down) * ((1 - across) * image[top][left] + across * image[top][right]) +
         down * ((1 - across) * image[below][left] + across * image[below][right]);
}

/// The mean of samples in every cell of every region: [regions, channels, height, width].
at::Tensor aligned_regions(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                           std::int64_t pooled_height, std::int64_t pooled_width,
                           std::int64_t sampling_ratio, bool aligned) {
  const at::Tensor images = input.to(at::kDouble).contiguous(),
                   regions = rois.to(at::kDouble).contiguous();
  const std::int64_t count = regions.size(0), channels = images.size(1);
  at::Tensor result = at::zeros({count, channels, pooled_height, pooled_width}, at::kDouble);
  const auto image = images.accessor<double, 4>();
  const auto region = regions.accessor<double, 2>();
  auto out = result.accessor<double, 4>();
  const double offset = aligned ? 0.5 : 0;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto number = static_cast<std::int64_t>(region[n][0]);
    const double left = region[n][1] * spatial_scale - offset,
                 top = region[n][2] * spatial_scale - offset;
    double width = region[n][3] * spatial_scale - offset - left,
           height = region[n][4] * spatial_scale - offset - top;
    if (!aligned) {
      width = std::max(width, 1.0);
      height = std::max(height, 1.0);
    }
    const double cell_height = height / static_cast<double>(pooled_height),
                 cell_width = width / static_cast<double>(pooled_width);
    const auto samples = [&](double cell) {
      return sampling_ratio > 0 ? sampling_ratio : static_cast<std::int64_t>(std::ceil(cell));
    };
    const std::int64_t down = samples(cell_height), across = samples(cell_width);
    const auto all = static_cast<double>(std::max<std::int64_t>(down * across, 1));
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < pooled_height; ++i) {
        for (std::int64_t j = 0; j < pooled_width; ++j) {
          double sum = 0;
          for (std::int64_t a = 0; a < down; ++a) {
            for (std::int64_t b = 0; b < across; ++b) {
              const double y = top + (static_cast<double>(i) +
                                      (static_cast<double>(a) + 0.5) / static_cast<double>(down)) *
                                         cell_height;
              const double x = left + (static_cast<double>(j) + (static_cast<double>(b) + 0.5) /
                                                                    static_cast<double>(across)) *
                                          cell_width;
              sum += value_between(image[number][c], y, x);
            }
          }
          out[n][c][i][j] = sum / all;
        }
      }
    }
  }
  return result.to(input.scalar_type());
}

std::unique_ptr<torch::Library> registered() {
  const auto known = c10::Dispatcher::singleton().findSchema({"torchvision::nms", ""});
  if (known) return nullptr;
  auto library = std::make_unique<torch::Library>(torch::Library::FRAGMENT, "torchvision",
                                                  std::nullopt, __FILE__, __LINE__);
  library->def("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor");
  library->def(
      "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
      "int pooled_width, int sampling_ratio, bool aligned) -> Tensor");
  library->def(
      "roi_pool(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
      "int pooled_width) -> (Tensor, Tensor)");
  library->def(
      "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
      "int pooled_width, int sampling_ratio) -> (Tensor, Tensor)");
  library->def(
      "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
      "int pooled_width) -> (Tensor, Tensor)");
  library->def(
      "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
      "int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, "
      "int groups, int offset_groups, bool use_mask) -> Tensor");
  library->impl("nms", c10::DispatchKey::CPU, TORCH_FN(kept_boxes));
  library->impl("roi_align", c10::DispatchKey::CPU, TORCH_FN(aligned_regions));
  return library;
}

}  // namespace

void know_torchvision() {
  static const std::unique_ptr<torch::Library> kLibrary = registered();
  static_cast<void>(kLibrary);
}

}  // namespace mezzo::deploy
