// MXNet's output operators, which carry their own loss: SoftmaxOutput and the regression outputs.
//
// Their result is a prediction, and their gradient is that of the loss, whatever arrives from
// above: backward() on the result needs no loss, and multiplying the result scales nothing. A
// loss scale therefore reaches them directly: while one trainer is initialized for it
// (gluon::init_trainer), their gradient is multiplied by that trainer's scale and its next step
// divides by it. With several such trainers it is unclear whose scale counts, which is a
// ConfigError wherever autograd records (at::GradMode), inside of scale_loss and outside, whether
// `data` wants a gradient or not; so are data that come from parameters of a trainer without a
// scale while another has one, since its steps would not divide. Under torch::NoGradGuard they
// predict, and nothing is scaled. All compute in float32 (float64 stays), under casts too.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "mezzo/export.h"

namespace mezzo::gluon {

/// How softmax_output treats labels and gradients.
struct SoftmaxOutputOptions {
  double grad_scale = 1;      ///< multiplies the gradient
  double ignore_label = -1;   ///< with `use_ignore`: no gradient where the label is this
  bool multi_output = false;  ///< softmax over axis 1 at each of the other places
  bool use_ignore = false;
  bool preserve_shape = false;         ///< softmax over the last axis
  std::string normalization = "null";  ///< of the gradient: "null", "batch" or "valid"
  double smooth_alpha = 0;             ///< label smoothing
};

/// Softmax whose gradient is that of the cross entropy. `data` is [samples, ...] and taken as
/// [samples, classes]; `label` holds class indices, one a sample (or a place), or probabilities in
/// the shape of `data`. Labels get no gradient. "batch" divides the gradient by the number of
/// samples, "valid" by the number of labels that are not `ignore_label`; with `multi_output` it is
/// also divided by the number of places unless "valid" is asked for. Sizes that do not fit, an
/// unknown normalization, and a `smooth_alpha` outside 0 to 1: ConfigError.
MEZZO_API at::Tensor softmax_output(const at::Tensor& data, const at::Tensor& label,
                                    const SoftmaxOutputOptions& options = {});

/// The options of the regression outputs.
struct RegressionOutputOptions {
  double grad_scale = 1;  ///< multiplies the gradient
};

/// `data` as it is; the gradient is (data - label) / outputs per sample. The label has as many
/// elements as the data, otherwise ConfigError.
MEZZO_API at::Tensor linear_regression_output(const at::Tensor& data, const at::Tensor& label,
                                              RegressionOutputOptions options = {});
/// sigmoid(data); the gradient is (sigmoid(data) - label) / outputs per sample.
MEZZO_API at::Tensor logistic_regression_output(const at::Tensor& data, const at::Tensor& label,
                                                RegressionOutputOptions options = {});
/// `data` as it is; the gradient is sign(data - label) / outputs per sample.
MEZZO_API at::Tensor mae_regression_output(const at::Tensor& data, const at::Tensor& label,
                                           RegressionOutputOptions options = {});

}  // namespace mezzo::gluon
