// GluonCV's SSDMultiBoxLoss.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace examples {

/// One loss a sample, for each device.
struct MultiBoxLosses {
  std::vector<at::Tensor> sum, cls, box;
};

/// Cross entropy of the classes, over positive anchors and three times as many of the hardest
/// negatives, and smooth L1 of the boxes of positive anchors; both divided by the positive anchors
/// of all devices. Targets of classes are 0 for background and below it for anchors that do not
/// count.
class SsdMultiBoxLoss {
 public:
  explicit SsdMultiBoxLoss(double negative_mining_ratio = 3, double rho = 1, double lambda = 1)
      : negative_mining_ratio_(negative_mining_ratio), rho_(rho), lambda_(lambda) {}

  /// Takes one tensor of each kind for every device. Reads the number of positives from the
  /// devices, as GluonCV does.
  MultiBoxLosses operator()(const std::vector<at::Tensor>& cls_preds,
                            const std::vector<at::Tensor>& box_preds,
                            const std::vector<at::Tensor>& cls_targets,
                            const std::vector<at::Tensor>& box_targets) const;

 private:
  double negative_mining_ratio_, rho_, lambda_;
};

}  // namespace examples
