// Layers whose forward and backward are few passes over memory, for float, half, bfloat16 and
// double.
//
// Norms take any mixture of those types for input, weight and bias; statistics are float (double if
// anything is double), and the result has the input's type. On CPUs, and on CUDA devices where the
// kernels are loaded, they run the fused kernels, elsewhere LibTorch's operators. Where the graph
// of the backward is wanted (create_graph) the backward is made of differentiable operators.
//
// Errors (ConfigError): sizes that do not fit, types that are not floating-point.
//
//   mezzo::nn::FusedLayerNorm norm(std::vector<std::int64_t>{768});
//   at::Tensor y = norm(x);                                   // x: [..., 768]
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/attention.h"
#include "mezzo/export.h"

namespace mezzo::nn {

/// Normalises over the last dimensions, which have the sizes `normalized_shape`; `weight` and
/// `bias` have those sizes or are undefined. With `memory_efficient` the backward is computed from
/// the output, so that the input need not be kept; a weight nearer to zero than `eps` counts as
/// `eps` there, and one of exactly 0 gets gradient 0 (as in Apex): do not start weights at 0 then.
/// Devices without kernels of ours keep the input. Layer normalisation: Ba et al. 2016.
MEZZO_API at::Tensor fused_layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                                      const at::Tensor& weight = {}, const at::Tensor& bias = {},
                                      double eps = 1e-5, bool memory_efficient = false);

/// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019).
MEZZO_API at::Tensor fused_rms_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                                    const at::Tensor& weight = {}, double eps = 1e-5,
                                    bool memory_efficient = false);

/// The sum x + residual, in the wider type of both, and its norm, in x's type: what a transformer's
/// block does between its parts, in one pass. The norm is that of the sum as it is stored.
MEZZO_API std::pair<at::Tensor, at::Tensor> fused_add_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const at::Tensor& weight = {}, const at::Tensor& bias = {}, double eps = 1e-5);
/// As above, with the RMS norm.
MEZZO_API std::pair<at::Tensor, at::Tensor> fused_add_rms_norm(const at::Tensor& x,
                                                               const at::Tensor& residual,
                                                               at::IntArrayRef normalized_shape,
                                                               const at::Tensor& weight = {},
                                                               double eps = 1e-5);

/// Options of both norms.
struct NormOptions {
  /// The sizes of the dimensions that are normalised together: the last ones of the input.
  std::vector<std::int64_t> normalized_shape = {};
  /// Added to the variance, or the mean square.
  double eps = 1e-5;
  /// Weight (ones), and for layer norm bias (zeros), that are trained.
  bool elementwise_affine = true;
  /// Keeps the output in place of the input for the backward.
  bool memory_efficient = false;
};

/// Parameters `weight` and `bias`, as torch::nn::LayerNorm's.
class MEZZO_API FusedLayerNormImpl : public torch::nn::Cloneable<FusedLayerNormImpl> {
 public:
  /// Sizes that are missing or not above 0: ConfigError.
  explicit FusedLayerNormImpl(NormOptions given);
  /// The defaults with this shape.
  explicit FusedLayerNormImpl(std::vector<std::int64_t> normalized_shape);
  void reset() override;
  /// Starts the parameters anew.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Features are x's last sizes.
  at::Tensor forward(const at::Tensor& x);

  NormOptions options;      ///< as given
  at::Tensor weight, bias;  ///< undefined without elementwise_affine
};
TORCH_MODULE(FusedLayerNorm);

/// Parameter `weight`.
class MEZZO_API FusedRMSNormImpl : public torch::nn::Cloneable<FusedRMSNormImpl> {
 public:
  /// Sizes that are missing or not above 0: ConfigError.
  explicit FusedRMSNormImpl(NormOptions given);
  /// The defaults with this shape.
  explicit FusedRMSNormImpl(std::vector<std::int64_t> normalized_shape);
  void reset() override;
  /// Starts the parameters anew.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Features are x's last sizes.
  at::Tensor forward(const at::Tensor& x);

  NormOptions options;  ///< as given
  at::Tensor weight;    ///< undefined without elementwise_affine
};
TORCH_MODULE(FusedRMSNorm);

/// MLP's.
struct MLPOptions {
  /// Input, hidden and output features: at least two numbers above 0.
  std::vector<std::int64_t> sizes = {};
  /// Each layer adds a bias.
  bool bias = true;
  /// "none", "relu" or "sigmoid": follows every layer, the last one too.
  std::string activation = "relu";
};

/// Linear layers, each followed by the activation. Parameters `weight_0`, `bias_0`, `weight_1`,
/// ...; they start normally distributed, weights with deviation sqrt(2 / (in + out)), biases with
/// sqrt(1 / out).
class MEZZO_API MLPImpl : public torch::nn::Cloneable<MLPImpl> {
 public:
  /// Sizes or activations that cannot be: ConfigError.
  explicit MLPImpl(MLPOptions given);
  void reset() override;
  /// Starts the parameters anew.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Features are x's last sizes.
  at::Tensor forward(const at::Tensor& x);

  MLPOptions options;                       ///< as given
  std::vector<at::Tensor> weights, biases;  ///< one a layer; biases undefined without bias
};
TORCH_MODULE(MLP);

/// A linear layer. Parameters `weight` and `bias` start as torch::nn::Linear's.
class MEZZO_API FusedDenseImpl : public torch::nn::Cloneable<FusedDenseImpl> {
 public:
  /// Features not above 0: ConfigError.
  FusedDenseImpl(std::int64_t in_features, std::int64_t out_features, bool with_bias = true);
  void reset() override;
  /// Starts the parameters anew.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Features are x's last sizes.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;  ///< [out, in], [out]; bias undefined without one

 private:
  std::int64_t in_, out_;
  bool with_bias_;
};
TORCH_MODULE(FusedDense);

/// Linear, GELU (the exact one), linear. Parameters `weight1`, `bias1`, `weight2`, `bias2` start as
/// torch::nn::Linear's.
class MEZZO_API FusedDenseGeluDenseImpl : public torch::nn::Cloneable<FusedDenseGeluDenseImpl> {
 public:
  /// Features not above 0: ConfigError.
  FusedDenseGeluDenseImpl(std::int64_t in_features, std::int64_t intermediate_features,
                          std::int64_t out_features);
  void reset() override;
  /// Starts the parameters anew.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Features are x's last sizes.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight1, bias1, weight2, bias2;  ///< of the first and the second layer

 private:
  std::int64_t in_, intermediate_, out_;
};
TORCH_MODULE(FusedDenseGeluDense);

}  // namespace mezzo::nn
