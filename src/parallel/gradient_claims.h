// Ownership of parameters' gradients: two reducers on one would each send what the other is
// writing.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "parallel/flat_buckets.h"

namespace mezzo::parallel {

/// A reducer's right to the gradients of its parameters, for as long as it lives or until a later
/// one claims them. Safe from several threads.
class GradientClaims {
 public:
  /// Called with the name of a parameter when it was claimed by another; makes and ends no claims.
  using Lost = std::function<void(const std::string& parameter)>;

  /// Takes the parameters from all who claimed them before. They must live as long as this.
  GradientClaims(std::span<const ReducedParameter> parameters, Lost lost);
  ~GradientClaims();
  GradientClaims(const GradientClaims&) = delete;
  GradientClaims& operator=(const GradientClaims&) = delete;

 private:
  const Lost lost_;
};

}  // namespace mezzo::parallel
