// MXNet's optimizers as rows: what they are given, and how they move one parameter.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/torch.h"
#include "kernels/multi_tensor.h"

namespace mezzo::gluon {

/// The arguments of all optimizers; which of them one takes is in its row.
struct Hyper {
  double learning_rate = 0.01, wd = 0, clip_gradient = 0, rescale_grad = 1;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double gamma1 = 0.9, gamma2 = 0.9, centered = 0, clip_weights = 0;
  double lower_bound = 0, upper_bound = 0, bias_correction = 1, correct_bias = 1, wd_lh = 0;

  /// As in MXNet, a bound of 0 or less is none.
  bool clips() const { return clip_gradient > 0; }
};

/// 1 - share as MXNet's kernels have it: of floats, which is 1.3e-5 off for 0.999.
inline double rest_of(double share) {
  return static_cast<double>(1.0F - static_cast<float>(share));
}

/// One argument of an optimizer.
struct HyperKey {
  std::string_view name;
  double Hyper::*field;
  double initial;
};

/// The numbers of one parameter's update.
struct ParameterNumbers {
  double lr = 0, wd = 0;   // with the parameter's factors
  double rescale = 1;      // of the gradient
  std::int64_t count = 1;  // of its updates, this one included
};

/// One parameter's update by LibTorch's operators: moves `weight` and `state` in place, and leaves
/// `grad` alone.
using UpdateByOperators = void (*)(const Hyper&, const ParameterNumbers&, const at::Tensor& weight,
                                   const at::Tensor& grad, std::vector<at::Tensor>& state);

/// Updates of a list of parameters by the fused kernels, whose `scalars` count from 0.
using UpdateByKernels = void (*)(const Hyper&, std::span<const ParameterNumbers>, kernels::Lists&,
                                 std::span<const kernels::StepRow>);

/// An optimizer of MXNet.
struct UpdateRule {
  std::string_view name;
  double learning_rate;  // by default
  std::span<const HyperKey> keys;
  /// How many tensors of the weight's size it keeps.
  std::size_t (*states)(const Hyper&);
  UpdateByOperators by_operators;
  /// Null if no kernel computes this. Kernels do not clip: with a bound operators do the work.
  UpdateByKernels by_kernels;
};

/// Throws ConfigError, with the nearest names, for an optimizer that MXNet does not have.
const UpdateRule& rule_named(std::string_view name);

/// Throws ConfigError, with the nearest keys, for one that the optimizer does not take, and for
/// values that are not finite.
Hyper hyper_of(const UpdateRule&, const std::map<std::string, double>& given);

}  // namespace mezzo::gluon
