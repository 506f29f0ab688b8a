// The operands of a kernel: plain memory, element types, and the scalars that are read when it
// runs.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace mezzo::kernels {

/// How an updated weight is also written elsewhere in the same pass. The last two hold float
/// numbers rounded to the low type, for processors that compute in float what they emulate.
enum class CopyKind : std::uint8_t {
  kNone,
  kFloat16,
  kBFloat16,
  kRoundedToFloat16,
  kRoundedToBFloat16,
  kFloat32
};

/// Memory that is read, and memory that is written; `count` elements, dense.
struct Input {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t count = 0;
};
struct Output {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t count = 0;
};

/// The memory of one parameter in a fused step. Weights and gradients are float, float16 or
/// bfloat16 and their state is float; or all are double.
/// `state[]` is what the optimizer keeps per element, in the order that its step documents.
///
/// With a `remainder` the weight that is stepped is a float, split: `param` is bfloat16,
/// `remainder` has 16 bits an element and `ties` one; see split_master.h. For the steps of Adam,
/// SGD and LAMB.
struct StepRow {
  void* param = nullptr;
  const void* grad = nullptr;
  void* state[3] = {nullptr, nullptr, nullptr};
  void* copy = nullptr;
  std::int64_t count = 0;
  DType param_dtype = DType::kFloat32;
  DType grad_dtype = DType::kFloat32;
  CopyKind copy_kind = CopyKind::kNone;
  std::uint32_t scalars = 0;  // which numbers of the step are this row's
  void* remainder = nullptr;
  std::uint32_t* ties = nullptr;
};

/// A part of a row: elements begin to end - 1.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A cursor that runs in front of the loops of one thread over a list: what it passes is asked for,
/// so that it is in the caches when the loop comes there. It goes from one row into the next, since
/// what begins a tensor has to be asked for while the one before it is worked on.
struct Ahead {
  const StepRow* row = nullptr;
  const StepRow* end = nullptr;
  std::int64_t element = 0;  // of `row`

  void advance(std::int64_t count) {
    element += count;
    while (row != end && element >= row->count) {
      element -= row->count;
      ++row;
    }
  }
};

/// Read by a fused step when it runs, not when it is asked for: nothing moves if `*skip` is not
/// zero, and gradients are multiplied by `*inv_scale`. Null: never skip, no scale.
struct Guard {
  const float* skip = nullptr;
  const float* inv_scale = nullptr;
  /// Aligned copies are stored past the caches: what is overwritten need not be read. For lists so
  /// large that the caches would not hold the copies until the forward, either.
  bool copies_past_cache = false;
  /// Moved on by as many elements as the step works on. Null: nothing is asked for early.
  Ahead* ahead = nullptr;
};

}  // namespace mezzo::kernels
