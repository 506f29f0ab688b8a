// From SSD's predictions to boxes, and from labelled boxes to what SSD is trained on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace examples {

/// Boxes by their corners from offsets [N, anchors, 4] and the anchors [1, anchors, 4].
at::Tensor decode_boxes(const at::Tensor& box_preds, const at::Tensor& anchors);

/// How much two boxes of one class may share, how many candidates are looked at and how many
/// detections of an image are kept.
struct SuppressionOptions {
  double overlap = 0.45;
  double least_score = 0.01;
  std::int64_t candidates = 400, kept = 100;
};

/// Detections of each image, the best first; where there are fewer, class, score and box are -1.
struct Detections {
  at::Tensor ids;     ///< [N, kept, 1], class without background
  at::Tensor scores;  ///< [N, kept, 1]
  at::Tensor boxes;   ///< [N, kept, 4], corners in pixels
};

/// Every class of every anchor is a candidate, and among boxes of one class that overlap the best
/// one stays. Takes the three results of Ssd; computes on the CPU in float.
Detections detect(const at::Tensor& cls_preds, const at::Tensor& box_preds,
                  const at::Tensor& anchors, const SuppressionOptions& options = {});

/// Numbers that SSD is trained on.
struct Targets {
  at::Tensor classes;  ///< [N, anchors]: 0 background, else the class plus 1
  at::Tensor boxes;    ///< [N, anchors, 4]: offsets, 0 for background
};

/// Assigns labelled boxes [N, M, 4] (corners; rows of -1 fill up) of classes [N, M] to anchors: to
/// each box the anchor that overlaps it most, and then to each anchor the box that it overlaps most
/// and by at least half.
Targets match_anchors(const at::Tensor& anchors, const at::Tensor& boxes,
                      const at::Tensor& classes);

}  // namespace examples
