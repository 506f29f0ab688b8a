// The arithmetic of batch normalisation, for host and device, as elements.h: V is what is computed
// with (float, double, or a vector of floats), N a number of the channel, or a vector of such.
#pragma once

#include "kernels/elements.h"

namespace mezzo::kernels {

MEZZO_HD static inline float not_below_zero(float y) {
  return y < 0 ? 0.0f : y;
}
MEZZO_HD static inline double not_below_zero(double y) {
  return y < 0 ? 0.0 : y;
}
MEZZO_HD static inline float unless_not_positive(float y, float x) {
  return y <= 0 ? 0.0f : x;
}
MEZZO_HD static inline double unless_not_positive(double y, double x) {
  return y <= 0 ? 0.0 : x;
}

/// (x - mean) * rstd * weight + bias: `centre` is the mean in the type of V, and what its rounding
/// left over is in `shift`.
template <typename V, typename N>
MEZZO_HD static inline V batch_norm_element(V x, N centre, N scale, N shift) {
  return (x - centre) * scale + shift;
}

/// NaN stays.
template <typename V>
MEZZO_HD static inline V rectified(V y) {
  return not_below_zero(y);
}

/// The gradient of what was rectified to y; NaN in y lets it through.
template <typename V>
MEZZO_HD static inline V rectified_gradient(V y, V dy) {
  return unless_not_positive(y, dy);
}

/// dx as a linear function of dy and of x's distance from the centre.
template <typename V, typename N>
MEZZO_HD static inline V batch_norm_gradient(V dy, V x, N centre, N of_dy, N of_x, N constant) {
  return dy * of_dy + (x - centre) * of_x + constant;
}

/// The factors with which two counts are merged (Chan, Golub and LeVeque 1979).
struct MergeWeights {
  double share;  // of the second in both
  double cross;  // product of the counts over their sum
};

MEZZO_HD static inline MergeWeights merge_weights(double first, double second) {
  const double share = second / (first + second);
  return {share, first * share};
}

/// Adds the second moments to the first.
MEZZO_HD static inline void merge_into(double& mean, double& m2, double second_mean,
                                       double second_m2, const MergeWeights& weights) {
  const double apart = second_mean - mean;
  mean += apart * weights.share;
  m2 += second_m2 + apart * apart * weights.cross;
}

}  // namespace mezzo::kernels
