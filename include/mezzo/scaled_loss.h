// The block around a backward pass: the loss is scaled on the way in, gradients are unscaled and
// checked on the way out.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/optimizer.h"

namespace mezzo {
namespace amp::detail {
class LossScope;
}

namespace amp {

/// Options of one scale_loss.
struct ScaleLossOptions {
  /// Which of the `num_losses` scales.
  int loss_id = 0;

  /// Gradients stay scaled, for a later block to unscale; `step` is an error until then.
  bool delay_unscale = false;

  /// Gradients are unscaled, but the scale does not move and the step is not skipped.
  bool delay_overflow_check = false;
};

/// A loss inside its scope. Leaving the scope does the exit work once: gradients are unscaled,
/// checked and added to those that were there, and the scale moves. When an exception leaves the
/// scope, gradients, scales and optimizers are as they were at its beginning instead.
class MEZZO_API ScaledLoss {
 public:
  explicit ScaledLoss(std::unique_ptr<detail::LossScope> scope);
  ScaledLoss(ScaledLoss&&) noexcept;
  ScaledLoss& operator=(ScaledLoss&&) = delete;
  ~ScaledLoss();

  /// The scaled loss, in float at least.
  const at::Tensor& operator*() const;
  const at::Tensor* operator->() const;

  /// Backward from the scaled loss; the arguments are those of at::Tensor::backward.
  void backward(const at::Tensor& gradient = {}, std::optional<bool> retain_graph = {},
                bool create_graph = false);

  /// The exit work now, with errors as exceptions. The destructor never throws: what went wrong
  /// there, the next `step` throws.
  void close();

 private:
  std::unique_ptr<detail::LossScope> scope_;
};

/// Scales a loss for the optimizers that own parameters which its backward pass reaches. The loss
/// must have one element. Throws Error where one of the optimizers is already inside such a scope,
/// ConfigError for a `loss_id` out of range or a loss that is not a scalar of floating type.
[[nodiscard]] MEZZO_API ScaledLoss scale_loss(const at::Tensor& loss, Optimizer& optimizer,
                                              ScaleLossOptions options = {});
[[nodiscard]] MEZZO_API ScaledLoss scale_loss(
    const at::Tensor& loss, std::initializer_list<std::reference_wrapper<Optimizer>> optimizers,
    ScaleLossOptions options = {});
[[nodiscard]] MEZZO_API ScaledLoss scale_loss(const at::Tensor& loss,
                                              std::span<Optimizer> optimizers,
                                              ScaleLossOptions options = {});
template <typename... Optimizers>
requires(std::same_as<Optimizers, Optimizer>&&...) [[nodiscard]] ScaledLoss
    scale_loss(const at::Tensor& loss, std::tuple<Optimizers...>& optimizers,
               ScaleLossOptions options = {}) {
  return std::apply(
      [&](auto&... each) {
        std::vector<Optimizer> list{each...};
        return scale_loss(loss, std::span<Optimizer>(list), options);
      },
      optimizers);
}

}  // namespace amp
}  // namespace mezzo
