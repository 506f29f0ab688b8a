#include "ssd512/detection.h"

#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "ssd512/anchors.h"

namespace examples {

namespace {

const std::vector<double> kDeviations{0.1, 0.1, 0.2, 0.2};  // of offsets

at::Tensor deviations(const at::Tensor& like) {
  return torch::tensor(kDeviations, at::kDouble).to(like.options());
}

/// Rows [class, score, left, top, right, bottom] of one image, as many as are kept.
at::Tensor suppress(const at::Tensor& scores, const at::Tensor& boxes,
                    const SuppressionOptions& options) {
  const std::int64_t anchors = boxes.size(0);
  const at::Tensor flat = scores.t().contiguous().flatten();  // class by class, as in GluonCV
  const at::Tensor valid = flat.gt(options.least_score).nonzero().flatten();
  const at::Tensor order =
      std::get<1>(flat.index_select(0, valid).sort(/*stable=*/true, 0, /*descending=*/true))
          .slice(0, 0, options.candidates);
  const at::Tensor chosen = valid.index_select(0, order);
  const at::Tensor classes = chosen.div(anchors, "floor");
  const at::Tensor corners = boxes.index_select(0, chosen.remainder(anchors));
  const at::Tensor rivals = box_iou(corners, corners)
                                .gt(options.overlap)
                                .logical_and(classes.unsqueeze(0).eq(classes.unsqueeze(1)))
                                .contiguous();

  std::vector<std::int64_t> stays;
  const bool* overlaps = rivals.const_data_ptr<bool>();
  const std::int64_t count = chosen.size(0);
  for (std::int64_t i = 0; i < count && static_cast<std::int64_t>(stays.size()) < options.kept;
       ++i) {
    const bool is_beaten = std::ranges::any_of(
        stays, [&](std::int64_t better) { return overlaps[better * count + i]; });
    if (!is_beaten) stays.push_back(i);
  }
  const at::Tensor rows = torch::tensor(stays, at::kLong);
  at::Tensor result = torch::full({options.kept, 6}, -1.0F);
  result.slice(0, 0, rows.size(0))
      .copy_(torch::cat({classes.to(at::kFloat).unsqueeze(1),
                         flat.index_select(0, chosen).unsqueeze(1), corners},
                        1)
                 .index_select(0, rows));
  return result;
}

/// For one image: the box that each anchor is to find, -1 for none. `overlap` is [anchors, M].
at::Tensor matches_of(const at::Tensor& overlap) {
  constexpr float kLeast = 1e-12F, kHalf = 0.5F;
  const std::int64_t anchors = overlap.size(0), count = overlap.size(1);
  std::vector<std::int64_t> match(static_cast<std::size_t>(anchors), -1);

  // Pairs by their overlap, each anchor and each box once.
  const at::Tensor flat = overlap.contiguous().flatten();
  const at::Tensor order = std::get<1>(flat.sort(/*stable=*/true, 0, /*descending=*/true));
  const float* values = flat.const_data_ptr<float>();
  const std::int64_t* places = order.const_data_ptr<std::int64_t>();
  std::vector<bool> is_found(static_cast<std::size_t>(count), false);
  std::int64_t open = count;
  for (std::int64_t i = 0; i < flat.numel() && open > 0 && values[places[i]] > kLeast; ++i) {
    const auto anchor = static_cast<std::size_t>(places[i] / count);
    const auto box = static_cast<std::size_t>(places[i] % count);
    if (match[anchor] >= 0 || is_found[box]) continue;
    match[anchor] = static_cast<std::int64_t>(box);
    is_found[box] = true;
    --open;
  }

  // Then the best box of an anchor, if no other anchor overlaps it more, or by half at least.
  const auto [best, which] = overlap.max(1);
  const at::Tensor most = std::get<0>(overlap.max(0)).index_select(0, which);
  const at::Tensor takes = best.ge(most).logical_or(best.ge(kHalf));
  for (std::int64_t i = 0; i < anchors; ++i) {
    auto& own = match[static_cast<std::size_t>(i)];
    if (own < 0 && takes[i].item<bool>()) own = which[i].item<std::int64_t>();
  }
  return torch::tensor(match, at::kLong);
}

}  // namespace

at::Tensor decode_boxes(const at::Tensor& box_preds, const at::Tensor& anchors) {
  const at::Tensor offsets = box_preds * deviations(box_preds);
  const at::Tensor size = anchors.slice(-1, 2, 4);
  const at::Tensor centre = offsets.slice(-1, 0, 2) * size + anchors.slice(-1, 0, 2);
  const at::Tensor half = offsets.slice(-1, 2, 4).exp() * size / 2;
  return torch::cat({centre - half, centre + half}, -1);
}

Detections detect(const at::Tensor& cls_preds, const at::Tensor& box_preds,
                  const at::Tensor& anchors, const SuppressionOptions& options) {
  const torch::NoGradGuard no_grad;
  const at::Tensor boxes = decode_boxes(box_preds.to(at::kCPU, at::kFloat), anchors.to(at::kCPU));
  const at::Tensor scores = cls_preds.to(at::kCPU, at::kFloat).softmax(-1).slice(-1, 1);
  std::vector<at::Tensor> images;
  for (std::int64_t i = 0; i < boxes.size(0); ++i)
    images.push_back(suppress(scores[i], boxes[i], options));
  const at::Tensor all = torch::stack(images);
  return {all.slice(-1, 0, 1), all.slice(-1, 1, 2), all.slice(-1, 2, 6)};
}

Targets match_anchors(const at::Tensor& anchors, const at::Tensor& boxes,
                      const at::Tensor& classes) {
  const at::Tensor own = anchors.reshape({-1, 4}), corners = centre_to_corner(own);
  std::vector<at::Tensor> all_classes, all_offsets;
  for (std::int64_t i = 0; i < boxes.size(0); ++i) {
    const at::Tensor match = matches_of(box_iou(corners, boxes[i]));
    const at::Tensor is_positive = match >= 0, index = match.clamp_min(0);
    all_classes.push_back(torch::where(is_positive, classes[i].index_select(0, index) + 1,
                                       torch::zeros({own.size(0)}, classes.options())));

    const at::Tensor found = corner_to_centre(boxes[i].index_select(0, index));
    const at::Tensor size = own.slice(1, 2, 4);
    const at::Tensor offsets = torch::cat({(found.slice(1, 0, 2) - own.slice(1, 0, 2)) / size,
                                           (found.slice(1, 2, 4) / size).log()},
                                          1) /
                               deviations(own);
    all_offsets.push_back(
        torch::where(is_positive.unsqueeze(1), offsets, torch::zeros_like(offsets)));
  }
  return {torch::stack(all_classes), torch::stack(all_offsets)};
}

}  // namespace examples
