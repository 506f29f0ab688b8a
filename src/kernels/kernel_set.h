// The kernels of one instruction set, as a struct of function pointers with a name, and which set
// is in force. Free of LibTorch.
//
// Every function works on one range of one tensor and keeps nothing: multi_tensor.h runs them over
// lists and threads. Results do not depend on how a tensor is cut into ranges, except the last bits
// of sums.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/batch_norm.h"
#include "kernels/batch_norm_elements.h"
#include "kernels/buffers.h"
#include "kernels/elements.h"
#include "kernels/norms.h"
#include "kernels/split_master.h"

namespace mezzo::kernels {

/// Sums of squares of a weight and of its LAMB update.
struct LambNorms {
  double param = 0;
  double update = 0;
};

/// Batch norms; see batch_norm.h. Moments are merged into, and sums added to, what is there for the
/// part's channels; moments must be those of no element before.
struct BatchNormKernels {
  void (*moments)(const Rows& x, const BatchShape&, const BatchPart&, const Moments&);
  void (*normalise)(const BatchNormalise&, const BatchPart&, const BatchCoefficients&);
  void (*backward_reduce)(const BatchGradient&, const BatchPart&, const BatchCoefficients&,
                          double* sum_dy, double* sum_dy_xmu);
  void (*backward_apply)(const BatchBackwardApply&, const BatchPart&, const BatchCoefficients&);
};

/// No member has a default, so that a set without one of them does not compile.
struct KernelSet {
  const char* name;

  /// No infinity and no NaN in the range. Reads only.
  bool (*all_finite)(const Input&, Range);
  /// The largest magnitude; NaN if there is one.
  double (*max_magnitude)(const Input&, Range);
  /// The sum of squares, in double.
  double (*square_sum)(const Input&, Range);

  /// out = in * factor, and: is every result finite in the output's type? Computed in float, or in
  /// double if either is. `in` and `out` may be the same memory.
  bool (*scale)(const Input& in, const Output& out, Range, double factor);
  /// out = a * x + b * y, with the same answer. `out` may be the memory of `x` or `y`.
  bool (*axpby)(const Input& x, const Input& y, const Output& out, Range, double a, double b);
  /// out = in, rounded to nearest even.
  void (*copy)(const Input& in, const Output& out, Range);
  void (*copy_as)(const Input& in, void* out, CopyKind, Range);
  /// Split masters as floats, and floats split; of the row only its memory of a split master is
  /// used. Splitting writes weights, remainders and ties; a range of whole words of ties, or none
  /// beside it on another thread.
  void (*join_masters)(const StepRow&, float* masters, Range);
  void (*split_masters)(const StepRow&, const float* masters, Range);

  /// The fused steps: see elements.h for the arithmetic. Nothing is written where the guard skips.
  /// state: exp_avg, exp_avg_sq, and max_exp_avg_sq with amsgrad.
  void (*adam)(const StepRow&, Range, const AdamScalars<double>&, const Guard&);
  /// state: momentum_buffer where momentum is not zero.
  void (*sgd)(const StepRow&, Range, const SgdScalars<double>&, const Guard&);
  /// state: sum.
  void (*adagrad)(const StepRow&, Range, const AdagradScalars<double>&, const Guard&);
  /// state: exp_avg, exp_avg_sq. The first half moves them, the second the weight.
  LambNorms (*lamb_moments)(const StepRow&, Range, const LambScalars<double>&, const Guard&);
  void (*lamb_apply)(const StepRow&, Range, const LambScalars<double>&, const Guard&);
  /// state: exp_avg.
  void (*novograd)(const StepRow&, Range, const NovogradScalars<double>&, const Guard&);

  /// Normalises rows; see norms.h.
  void (*norm_forward)(const NormForward&, Range rows);
  /// Writes dx of rows and adds to the sums over rows: `dweight` and `dbias` are float, or double
  /// if wide, one number a column.
  void (*norm_backward)(const NormBackward&, Range rows, void* dweight, void* dbias);

  /// Batch norms; see BatchNormKernels.
  decltype(BatchNormKernels::moments) batch_moments;
  decltype(BatchNormKernels::normalise) batch_normalise;
  decltype(BatchNormKernels::backward_reduce) batch_backward_reduce;
  decltype(BatchNormKernels::backward_apply) batch_backward_apply;
};

/// The sets that this processor runs, slowest first.
std::span<const KernelSet* const> usable_kernel_sets();

/// The set in force: the last of them, unless one was chosen. May be called from any thread.
const KernelSet& kernels();

/// Puts the set of that name in force for the whole process. Unknown or not usable here:
/// ConfigError that lists those that are.
void choose_kernel_set(std::string_view name);

namespace baseline {
const KernelSet& kernel_set();
}
namespace avx2 {
const KernelSet& kernel_set();
}
namespace avx512 {
const KernelSet& kernel_set();
}

}  // namespace mezzo::kernels
