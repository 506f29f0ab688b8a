#include "ssd512/multibox_loss.h"

#include <torch/types.h>

#include <algorithm>

namespace examples {

namespace {

/// Ranks along each row: 0 for the smallest value, of equal ones the first.
at::Tensor ranks(const at::Tensor& values) {
  const at::Tensor order = std::get<1>(values.sort(/*stable=*/true, 1, /*descending=*/false));
  return std::get<1>(order.sort(/*stable=*/true, 1, /*descending=*/false));
}

}  // namespace

MultiBoxLosses SsdMultiBoxLoss::operator()(const std::vector<at::Tensor>& cls_preds,
                                           const std::vector<at::Tensor>& box_preds,
                                           const std::vector<at::Tensor>& cls_targets,
                                           const std::vector<at::Tensor>& box_targets) const {
  MultiBoxLosses losses;
  double positives = 0;
  for (const at::Tensor& target : cls_targets) positives += target.gt(0).sum().item<double>();
  if (positives < 1) {
    for (std::size_t i = 0; i < cls_preds.size(); ++i) {
      losses.cls.push_back((cls_preds[i] * 0).sum());
      losses.box.push_back((box_preds[i] * 0).sum());
      losses.sum.push_back(losses.cls.back() + losses.box.back());
    }
    return losses;
  }

  for (std::size_t i = 0; i < cls_preds.size(); ++i) {
    const at::Tensor& target = cls_targets[i];
    const at::Tensor positive = target > 0;
    const at::Tensor kind = target.to(at::kLong).clamp(0, cls_preds[i].size(-1) - 1).unsqueeze(-1);
    const at::Tensor entropy = -cls_preds[i].log_softmax(-1).gather(-1, kind).squeeze(-1);
    // Negatives in the order of their losses, the largest first; positives stand behind them.
    const at::Tensor rank = ranks(entropy.detach() * (positive.to(entropy.scalar_type()) - 1));
    const at::Tensor hard = rank < (positive.sum(1) * negative_mining_ratio_).unsqueeze(-1);
    const at::Tensor counted =
        torch::where(positive.logical_or(hard), entropy, torch::zeros_like(entropy));
    losses.cls.push_back(counted.sum(1) / positives);

    const at::Tensor error = (box_preds[i] - box_targets[i]).abs();
    const at::Tensor smooth =
        torch::where(error > rho_, error - 0.5 * rho_, (0.5 / rho_) * error.square());
    losses.box.push_back((smooth * positive.unsqueeze(-1)).sum({1, 2}) / positives);
    losses.sum.push_back(losses.cls.back() + lambda_ * losses.box.back());
  }
  return losses;
}

}  // namespace examples
