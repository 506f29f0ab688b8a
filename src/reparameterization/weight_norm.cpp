#include <ATen/ops/linalg_vector_norm.h>

#include <limits>
#include <numeric>
#include <vector>

#include "core/torch.h"
#include "mezzo/reparameterization.h"

namespace mezzo {
namespace {

at::Tensor in_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

at::Tensor norm_but(const at::Tensor& v, std::int64_t dim) {
  std::vector<std::int64_t> others(static_cast<std::size_t>(v.dim()));
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + (dim < 0 ? dim + v.dim() : dim));
  return at::linalg_vector_norm(in_float(v), 2, others, /*keepdim=*/true);
}

}  // namespace

Reparameterization::~Reparameterization() = default;

Reparameterization::Parameters WeightNorm::reparameterize(const at::Tensor& weight,
                                                          std::int64_t dim) {
  Parameters parameters;
  parameters.insert("_g", norm_but(weight, dim).to(weight.scalar_type()));
  parameters.insert("_v", weight);
  return parameters;
}

at::Tensor WeightNorm::compute_weight(const Parameters& parameters, std::int64_t dim) {
  const at::Tensor& v = parameters["_v"];
  const at::Tensor norm = norm_but(v, dim).clamp_min(std::numeric_limits<float>::min());
  return in_float(v) * (in_float(parameters["_g"]) / norm);
}

}  // namespace mezzo
