// Spectral normalisation of a discriminator's weights (Miyato and others 2018), as a
// reparameterization of one's own.
#pragma once

#include <mezzo/autocast.h>
#include <mezzo/reparameterization.h>
#include <torch/nn/functional/normalization.h>

namespace examples {

/// w / its largest singular value, which power iteration follows: one turn a call, as in the paper.
/// Norms and products are taken in float, whatever type the level gives the weight.
class SpectralNorm : public mezzo::Reparameterization {
 public:
  Parameters reparameterize(const at::Tensor& weight, std::int64_t) override {
    left_ = unit(torch::ones({weight.size(0)}, weight.options().dtype(at::kFloat)));
    const at::Tensor matrix = weight.detach().flatten(1).to(at::kFloat);
    for (int i = 0; i < kFirstTurns; ++i) turn(matrix);
    Parameters parameters;
    parameters.insert("_orig", weight);
    return parameters;
  }

  at::Tensor compute_weight(const Parameters& parameters, std::int64_t) override {
    const mezzo::amp::DisableCasts in_float;
    const at::Tensor& weight = parameters["_orig"];
    const at::Tensor matrix = weight.flatten(1).to(at::kFloat);
    {
      const torch::NoGradGuard no_grad;
      left_ = left_.to(matrix.device());
      turn(matrix);
    }
    return weight / left_.dot(matrix.mv(right_));
  }

 private:
  static constexpr int kFirstTurns = 20;

  static at::Tensor unit(const at::Tensor& vector) {
    return torch::nn::functional::normalize(vector,
                                            torch::nn::functional::NormalizeFuncOptions().dim(0));
  }
  void turn(const at::Tensor& matrix) {
    right_ = unit(matrix.t().mv(left_));
    left_ = unit(matrix.mv(right_));
  }

  at::Tensor left_, right_;  // singular vectors of the largest value
};

}  // namespace examples
