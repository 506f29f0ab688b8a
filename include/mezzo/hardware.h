// The abilities of this machine's processors, and which of them are used.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/export.h"

namespace mezzo {

/// How matrix, convolution, attention and recurrent operators on 16-bit tensors are computed on
/// processors. GPUs always compute natively.
enum class ComputeMode : std::uint8_t {
  kAuto,      ///< whichever a measurement found faster
  kNative,    ///< by LibTorch's 16-bit kernels
  kEmulated,  ///< inputs rounded to 16 bits, computed in float32, the result rounded
};

/// The choice in force for one 16-bit type, and the measurements behind it.
struct ComputeChoice {
  at::ScalarType low;     ///< float16 or bfloat16
  ComputeMode mode;       ///< kNative or kEmulated
  bool forced;            ///< by set_compute_mode
  double low_rate;        ///< matrix products in that type, 1e9 operations a second; 0: no kernel
  double float_rate;      ///< and in float32
  double low_over_float;  ///< time of the measured operators in that type over that in float32
  std::string why;        ///< one clause
  /// The use of the type on each CUDA device, in the driver's order: "cuda:0 (Tesla T4, compute
  /// capability 7.5): no bfloat16 in hardware before 8.0, so operators are slow or refused"
  std::vector<std::string> cuda;
};

/// Forces a mode for float16 or bfloat16, for the whole process and from the next scope on; kAuto
/// goes back to the measurement. Another type: ConfigError. Thread-safe.
MEZZO_API void set_compute_mode(at::ScalarType low, ComputeMode);

/// The mode in force: kNative or kEmulated. The first call measures for some tens of milliseconds,
/// once in a process for each type, unless a mode was forced. Another type than float16 or
/// bfloat16: ConfigError. Thread-safe.
MEZZO_API ComputeMode compute_mode(at::ScalarType low);

/// The mode with its reason; measures, if nothing has yet, also where a mode was forced. Starts
/// CUDA's driver where there is one, but makes no context on a device.
MEZZO_API ComputeChoice compute_choice(at::ScalarType low);

/// One line for each 16-bit type: mode, reason, measured rates; and one for each CUDA device.
MEZZO_API std::string hardware_report();

/// The names of the kernel sets that this processor runs, slowest first: "baseline", "avx2",
/// "avx512". The fused optimizers and layers use the last one unless another was chosen.
MEZZO_API std::vector<std::string> kernel_sets();

/// The kernel set in force.
MEZZO_API std::string kernel_set();

/// Why fused optimizers and layers have no kernels of ours for CUDA devices here, so that
/// LibTorch's operators do their work; empty if the kernels are loaded.
MEZZO_API std::string why_no_cuda_kernels();

/// The proof of a family of kernels on one CUDA device. Families: "steps", "lists", "norms",
/// "batch norms", "split masters".
struct KernelProof {
  std::string device;      ///< "cuda:0"
  std::string family;      ///< its name
  bool holds;              ///< its answers are those of LibTorch's operators: it is used
  std::string difference;  ///< else the first answer that is not, or what CUDA reported
};

/// The proofs of all families on all CUDA devices for which there are kernels. Those that nothing
/// has asked for yet are made, in some milliseconds. None in a capture. Thread-safe.
MEZZO_API std::vector<KernelProof> kernel_proofs();

/// Puts the kernel set of that name in force, for the whole process and from the next call on. For
/// tests, for measurements, and for results that must not depend on the processor. Throws
/// ConfigError, which lists the names, for one that is unknown or that this processor cannot run.
MEZZO_API void set_kernel_set(const std::string& name);

}  // namespace mezzo
