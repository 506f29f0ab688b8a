// Batch normalisation (Ioffe and Szegedy 2015) in pieces, between which ranks may exchange sums:
// moments of this rank's batch, their merging, the normalisation, and both halves of the backward.
// Free of LibTorch.
//
// Moments, sums and everything that is one number a channel are double; elements are computed in
// float for float, half and bfloat16, in double where the input is. A channel's mean is taken off
// in two parts, so that a mean that is far from 0 costs no accuracy.
#pragma once

#include <span>

#include "kernels/norms.h"

namespace mezzo::kernels {

/// Element s of channel c of sample n is at (n * channels + c) * places + s. A batch whose channels
/// are innermost (channels-last, or a matrix) has one place, and a sample for each position.
struct BatchShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t places = 1;

  std::int64_t count() const { return samples * places; }  // of a channel
};

/// A part of a batch: samples and channels.
struct BatchPart {
  Range samples;
  Range channels;
};

/// The mean of a channel and the sum of squared deviations from it, for all channels.
struct Moments {
  double* mean = nullptr;
  double* m2 = nullptr;
};

/// Numbers of double that batch_moments() and batch_backward_reduce() need for partial results.
std::int64_t batch_scratch(const BatchShape&);

/// The moments of a batch; zeros where it is empty. Welford's method in blocks, merged by Chan's
/// rule (Chan, Golub and LeVeque 1979), the same bits for any number of workers.
void batch_moments(const Rows& x, const BatchShape&, const Moments&, double* scratch,
                   const Workers&);

/// The moments of one rank: how many elements a channel had there, and its moments.
struct RankMoments {
  double count = 0;
  const double* mean = nullptr;
  const double* m2 = nullptr;
};

/// Merges the moments of all ranks, in their order; returns the sum of the counts. Ranks without
/// elements do not matter.
double merge_moments(std::span<const RankMoments>, std::int64_t channels, const Moments&);

/// y = (x - mean) * rstd * weight + bias + residual, then the larger of that and 0 with `relu` (NaN
/// stays). Weight and bias may be null: 1 and 0.
struct BatchNormalise {
  BatchShape shape;
  Rows x;
  Rows residual;  // null: none
  RowsOut y;
  const double* mean = nullptr;
  const double* rstd = nullptr;
  Rows weight, bias;
  bool relu = false;
};
void batch_normalise(const BatchNormalise&, const Workers&);

/// The inputs of the backward. With `relu_output`, the result of a normalisation with relu,
/// gradients count only where that is above 0.
struct BatchGradient {
  BatchShape shape;
  Rows dy;
  Rows x;
  Rows relu_output;  // null: there was no relu
  const double* mean = nullptr;
};

/// The sums over this rank's batch of dy and of dy * (x - mean), one a channel.
void batch_backward_reduce(const BatchGradient&, double* sum_dy, double* sum_dy_xmu,
                           double* scratch, const Workers&);

/// dx = (dy - mean_dy - (x - mean) * rstd^2 * mean_dy_xmu) * rstd * weight, where the means are
/// over all ranks; null means: the statistics did not depend on x. dresidual = dy where relu let
/// it through.
struct BatchBackwardApply {
  BatchGradient gradient;
  const double* rstd = nullptr;
  Rows weight;
  const double* mean_dy = nullptr;
  const double* mean_dy_xmu = nullptr;
  RowsOut dx;         // null: not wanted
  RowsOut dresidual;  // null: not wanted
};
void batch_backward_apply(const BatchBackwardApply&, const Workers&);

/// A channel's numbers as the kernels read them: float, or double for double, one array after the
/// other. Normalise: centre, scale, shift. Backward: centre, of_dy, of_x, constant.
struct BatchCoefficients {
  const void* data = nullptr;
  bool wide = false;
};

}  // namespace mezzo::kernels
