// The 16-bit forms that the standard allows and ONNX Runtime does not run.
//
// Facts in one table, onnxruntime_kernels.inc, that tools/make_onnxruntime_kernels.py makes by
// asking ONNX Runtime itself.
#pragma once

#include <span>
#include <string_view>

namespace mezzo::convert {

/// A type variable of an operator that cannot be 16 bits wide, or only together with another one.
struct KernelGap {
  std::string_view op;                ///< "ScatterND", "ai.onnx.ml::TreeEnsemble"
  int since;                          ///< the version of the operator: the opset in which it came
  std::string_view attribute, value;  ///< only where the attribute has that value; empty: always
  std::string_view variable;
  std::string_view with;  ///< it may be low only where this one is; empty: nowhere
  bool is_valid;          ///< do checkers of the standard accept it?
};

/// All rows, sorted by operator and version.
std::span<const KernelGap> kernel_gaps();

/// Those of one version of an operator.
std::span<const KernelGap> kernel_gaps(std::string_view op, int since);

}  // namespace mezzo::convert
