// Layer and RMS normalisation of rows, with an optional residual, forward and backward. Free of
// LibTorch.
//
// LayerNorm (Ba et al. 2016): y = (x - mean) / sqrt(var + eps) * weight + bias, over the columns of
// a row. RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * weight. Statistics are
// float for float, half and bfloat16, double where any buffer is double.
#pragma once

#include "kernels/buffers.h"
#include "kernels/workers.h"

namespace mezzo::kernels {

/// Memory of a matrix or a row; null if there is none.
struct Rows {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
};
struct RowsOut {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
};

struct NormShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double eps = 0;
  bool rms = false;   // no mean, no bias
  bool wide = false;  // computes in double; statistics are double
};

struct NormForward {
  NormShape shape;
  Rows x;
  Rows residual;      // null: none; else x + residual is what is normalised
  RowsOut sum;        // x + residual, rounded to its type before it is normalised
  Rows weight, bias;  // null: 1 and 0
  RowsOut y;
  void* mean = nullptr;  // float or double, one a row; null: not kept, and RMS has none
  void* rstd = nullptr;
};

struct NormBackward {
  NormShape shape;
  Rows dy;
  /// The row that was normalised; or, with `from_output`, the normalised row, from which weight and
  /// bias are taken off again: a weight nearer to zero than `smallest_weight` counts as that.
  Rows x;
  bool from_output = false;
  double smallest_weight = 1e-5;
  Rows weight, bias;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  Rows dsum;  // null, or what flows to x beside the norm
  RowsOut dx;
  void* dweight = nullptr;  // float or double sums, one a column; null: not wanted
  void* dbias = nullptr;
};

/// How many row blocks the sums over rows are cut into: a matter of the shape alone, so that
/// results do not depend on the number of workers.
std::int64_t norm_blocks(std::int64_t rows);

/// Numbers of float (double if wide) that norm_backward() needs for its partial sums.
std::int64_t norm_scratch(const NormShape&);

/// Runs the kernels in force over all rows. `scratch` has norm_scratch() numbers.
void norm_forward(const NormForward&, const Workers&);
void norm_backward(const NormBackward&, void* scratch, const Workers&);

}  // namespace mezzo::kernels
