// The interface of libmezzo_cuda.so: a table of functions over raw device pointers and a stream.
// Free of CUDA's and LibTorch's headers, so that both sides include it.
//
// Everything is asynchronous: functions queue kernels on the stream and return; nothing waits for
// the device or reads from it, flags and counters are read and written by the kernels. All of it
// may be captured in a CUDA graph. Functions return false if CUDA reported an error; error()
// then reports it. They may be called from any thread; a List belongs to one at a time.
#pragma once

#include <cstdint>

#include "kernels/batch_norm.h"
#include "kernels/buffers.h"
#include "kernels/norms.h"
#include "kernels/recipes.h"

namespace mezzo::kernels::cuda {

inline constexpr std::uint32_t kInterfaceVersion = 5;

/// A cudaStream_t.
using Stream = void*;

/// Descriptors and scratch memory on one device for calls over the same list again and again. They
/// are written when a list differs from the last one only. Graphs that were captured with a list
/// use its memory: it must outlive them.
class List;

/// The state that a fused step keeps of a parameter besides elements, on the device.
struct RowState {
  std::int64_t* steps = nullptr;   // applied steps so far; null: not counted, every step is a 1st
  double* running_norm = nullptr;  // NovoGrad's
};

/// The flags that a fused step reads when it runs; each may be null.
struct StepFlags {
  const float* skip = nullptr;        // nothing moves if it is not zero, not even a counter
  const float* inv_scale = nullptr;   // multiplies gradients
  const double* grad_norm = nullptr;  // of all gradients as they stand, for max_grad_norm
};

template <typename Recipe>
using StepFunction = bool (*)(List*, const StepRow* rows, const RowState* states,
                              std::int64_t count, const Recipe* recipes, std::int64_t recipe_count,
                              const StepFlags&, Stream);

struct Interface {
  std::uint32_t version;

  /// Devices that the driver offers; 0 without a driver.
  int (*device_count)();
  /// Is there code for this device, of its generation or to be translated?
  bool (*runs_on)(int device);
  /// The last error of this thread.
  const char* (*error)();
  /// The capture of a graph that the stream takes part in, a number that no other capture of this
  /// process has; 0: none.
  std::uint64_t (*capture)(Stream);

  /// Null on failure.
  List* (*make_list)(int device);
  void (*free_list)(List*);

  /// *found_inf = 1 if an element of any tensor is not finite; never cleared.
  bool (*check)(List*, const Input*, std::int64_t count, float* found_inf, Stream);
  /// The norm of all elements together in *total and of each tensor in each[] (both may be null):
  /// the 2-norm, or the largest magnitude. *found_inf (may be null) = 1 if the total is not
  /// finite.
  bool (*norm)(List*, const Input*, std::int64_t count, bool largest, double* total, double* each,
               float* found_inf, Stream);
  /// out = in * factor * *factor_on_device (null: 1). *found_inf (may be null) = 1 if a result
  /// is not finite in the output's type. `in` and `out` may be the same memory.
  bool (*scale)(List*, const Input* in, const Output* out, std::int64_t count, double factor,
                const double* factor_on_device, float* found_inf, Stream);
  /// out = a * x + b * y, likewise; `each` (may be null) holds factors on the device, one a tensor
  /// for a, and behind them one a tensor for b.
  bool (*axpby)(List*, const Input* x, const Input* y, const Output* out, std::int64_t count,
                double a, double b, const double* each, float* found_inf, Stream);
  bool (*copy)(List*, const Input* in, const Output* out, std::int64_t count, Stream);
  /// As above, where *flag is not zero; else nothing is written.
  bool (*copy_if)(List*, const Input* in, const Output* out, std::int64_t count, const float* flag,
                  Stream);

  /// KernelSet's, of whole tensors on a device.
  bool (*join_masters)(const StepRow*, float* masters, int device, Stream);
  bool (*split_masters)(const StepRow*, const float* masters, int device, Stream);

  /// elements.h's update_scale() on three numbers of a device.
  bool (*update_scale)(float* scale, std::int32_t* unskipped, std::int32_t* stuck,
                       const float* found_inf, const ScaleRule*, int device, Stream);

  /// The fused steps; a row's `scalars` is its recipe. Weights, gradients and states as in
  /// kernel_set.h.
  StepFunction<AdamRecipe> adam;
  StepFunction<SgdRecipe> sgd;
  StepFunction<AdagradRecipe> adagrad;
  StepFunction<LambRecipe> lamb;
  StepFunction<NovogradRecipe> novograd;

  /// norms.h on device memory. norm_scratch() is what norm_backward() needs, in numbers of float
  /// (double if wide).
  bool (*norm_forward)(const NormForward*, int device, Stream);
  std::int64_t (*norm_scratch)(const NormShape*, int device);
  bool (*norm_backward)(const NormBackward*, void* scratch, int device, Stream);

  /// batch_norm.h on device memory, numbers of channels and `scratch` included. batch_scratch() is
  /// what moments and sums need, in doubles.
  std::int64_t (*batch_scratch)(const BatchShape*, int device);
  bool (*batch_moments)(const Rows* x, const BatchShape*, const Moments*, double* scratch,
                        int device, Stream);
  /// merge_moments(). Rank r has its means, its sums of squared deviations and its count from
  /// of_ranks + r * stride on.
  bool (*batch_merge)(const double* of_ranks, std::int64_t ranks, std::int64_t stride,
                      std::int64_t channels, const Moments*, int device, Stream);
  bool (*batch_normalise)(const BatchNormalise*, int device, Stream);
  bool (*batch_backward_reduce)(const BatchGradient*, double* sum_dy, double* sum_dy_xmu,
                                double* scratch, int device, Stream);
  bool (*batch_backward_apply)(const BatchBackwardApply*, int device, Stream);
};

}  // namespace mezzo::kernels::cuda

/// The one name that the library exports. Null if it is of another version.
extern "C" const mezzo::kernels::cuda::Interface* mezzo_cuda_interface(std::uint32_t version);
using MezzoCudaInterface = const mezzo::kernels::cuda::Interface* (*)(std::uint32_t version);
