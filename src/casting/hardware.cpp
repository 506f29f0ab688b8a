#include "casting/hardware.h"

#include "core/torch.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iomanip>
#include <limits>
#include <mutex>
#include <sstream>

#include "core/scalar_type.h"
#include "mezzo/hardware.h"

namespace mezzo {
namespace {

/// Emulation costs some per cent more than float: native arithmetic that is slower than this is not
/// worth having.
constexpr double kEmulationCost = 1.1;
/// A type that is this much slower after a few turns is not measured any further.
constexpr double kHopeless = 4.0;
constexpr int kRepeats = 7;
/// The first generations of CUDA devices, by their compute capability, that multiply matrices of a
/// type in hardware of its own.
constexpr int kFirstTensorCores = 7;
constexpr int kFirstBFloat16 = 8;
/// Turns before that is believed: the first builds kernels, and any may have waited for the
/// processor.
constexpr int kFirstSight = 3;
constexpr std::int64_t kSide = 256;

/// Seconds of a forward and a backward product, and of a convolution.
struct Times {
  double product = 0;
  double transposed = 0;
  double convolution = 0;
  double sum() const { return product + transposed + convolution; }
};

struct Measurement {
  Times in_float;
  Times in_low;
  bool has_kernel = true;

  double ratio() const { return has_kernel ? in_low.sum() / in_float.sum() : 0; }
  bool emulate() const { return !has_kernel || ratio() > kEmulationCost; }
};

template <typename Call>
double seconds(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The operators of one type. Values do not matter for the time, and random ones would move the
/// user's generator.
class Workload {
 public:
  explicit Workload(at::ScalarType type)
      : matrix_(at::full({kSide, kSide}, 0.5, at::TensorOptions(type))),
        images_(at::full({2, 32, 16, 16}, 0.5, at::TensorOptions(type))),
        filters_(at::full({32, 32, 3, 3}, 0.5, at::TensorOptions(type))) {}

  Times run() const {
    return {seconds([&] { at::mm(matrix_, matrix_); }),
            seconds([&] { at::mm(matrix_.t(), matrix_); }), seconds([&] {
              at::convolution(images_, filters_, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
            })};
  }

 private:
  at::Tensor matrix_, images_, filters_;
};

Times least(const Times& a, const Times& b) {
  return {std::min(a.product, b.product), std::min(a.transposed, b.transposed),
          std::min(a.convolution, b.convolution)};
}

Measurement measure(at::ScalarType low) {
  // The bare kernels: no autograd, no casts of ours or of native autocast.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  Measurement found;
  const Workload in_float(at::kFloat);
  found.in_float = in_float.run();
  try {
    const Workload in_low(low);
    found.in_low = in_low.run();
    // Taken in turns, so that a busy machine slows both.
    for (int i = 1; i < kRepeats && (i < kFirstSight || found.ratio() < kHopeless); ++i) {
      found.in_float = least(found.in_float, in_float.run());
      found.in_low = least(found.in_low, in_low.run());
    }
  } catch (const c10::Error&) {
    found.has_kernel = false;  // this LibTorch cannot compute in the type at all
  }
  return found;
}

/// On this thread alone. Several that wait for each other on a busy machine would make every type
/// equally slow. Inside of a parallel region LibTorch's kernels start no threads, and nobody else's
/// number of threads is touched.
Measurement measure_alone(at::ScalarType low) {
  Measurement found;
  at::parallel_for(0, 2, 1, [&](std::int64_t begin, std::int64_t) {
    if (begin == 0) found = measure(low);
  });
  return found;
}

/// The facts about one type.
struct LowType {
  std::atomic<ComputeMode> forced{ComputeMode::kAuto};
  std::atomic<ComputeMode> measured{ComputeMode::kAuto};  // kAuto: not yet
  std::once_flag once;
  Measurement measurement;
};

LowType& type_of(at::ScalarType low) {
  static std::array<LowType, kLowTypeCount> types;
  return types[static_cast<std::size_t>(
      mezzo::row_of(low_dtype_of(low, "compute_mode")).low_column)];
}

const Measurement& measurement_of(at::ScalarType low) {
  LowType& type = type_of(low);
  std::call_once(type.once, [&] {
    type.measurement = measure_alone(low);
    type.measured = type.measurement.emulate() ? ComputeMode::kEmulated : ComputeMode::kNative;
  });
  return type.measurement;
}

double rate_of(double product_seconds) {
  return 2.0 * kSide * kSide * kSide / product_seconds * 1e-9;
}

std::string reason(const Measurement& found, bool forced) {
  if (forced) return "forced by set_compute_mode";
  if (!found.has_kernel) return "this LibTorch has no kernels of the type for this processor";
  std::ostringstream text;
  text << std::setprecision(2) << "native operators take " << found.ratio()
       << " times as long as in float32";
  return text.str();
}

}  // namespace

void set_compute_mode(at::ScalarType low, ComputeMode mode) {
  type_of(low).forced = mode;
}

ComputeMode compute_mode(at::ScalarType low) {
  LowType& type = type_of(low);
  if (const ComputeMode forced = type.forced; forced != ComputeMode::kAuto) return forced;
  if (const ComputeMode known = type.measured; known != ComputeMode::kAuto) return known;
  measurement_of(low);
  return type.measured;
}

bool emulated(at::ScalarType low) {
  if (!is_low(low)) return false;
  return compute_mode(low) == ComputeMode::kEmulated;
}

ComputeChoice processor_choice(at::ScalarType low) {
  const Measurement& found = measurement_of(low);
  const bool forced = type_of(low).forced != ComputeMode::kAuto;
  return {.low = low,
          .mode = compute_mode(low),
          .forced = forced,
          .low_rate = found.has_kernel ? rate_of(found.in_low.product) : 0,
          .float_rate = rate_of(found.in_float.product),
          .low_over_float = found.ratio(),
          .why = reason(found, forced),
          .cuda = {}};
}

std::string name_of(const kernels::CudaDevice& device, std::size_t index) {
  return c10::str("cuda:", index, " (", device.name, ", compute capability ", device.major, ".",
                  device.minor, ")");
}

std::string why_slow(const kernels::CudaDevice& device, at::ScalarType low) {
  if (low == at::kBFloat16 && device.major < kFirstBFloat16)
    return c10::str("no bfloat16 in hardware before ", kFirstBFloat16,
                    ".0, so operators are slow or refused");
  if (low == at::kHalf && device.major < kFirstTensorCores)
    return c10::str("no tensor cores before ", kFirstTensorCores,
                    ".0, so float16 saves memory, but little time");
  return {};
}

ComputeChoice compute_choice(at::ScalarType low) {
  ComputeChoice choice = processor_choice(low);
  for (const kernels::CudaDevice& device : kernels::CudaDriver::of_this_machine().devices()) {
    const std::string slow = why_slow(device, low);
    choice.cuda.push_back(name_of(device, choice.cuda.size()) + ": " +
                          (slow.empty() ? "native" : slow));
  }
  return choice;
}

std::string hardware_report() {
  std::ostringstream text;
  text << std::setprecision(3);
  for (const DType low : kLowTypes) {
    const ComputeChoice choice = compute_choice(scalar_type_of(low));
    text << name_of(low) << ": "
         << (choice.mode == ComputeMode::kEmulated ? "emulated in float32" : "native") << ", "
         << choice.why << " (" << choice.low_rate << " against " << choice.float_rate
         << " GFLOP/s in matrix products)\n";
    for (const std::string& device : choice.cuda) text << "  " << device << '\n';
  }
  return text.str();
}

}  // namespace mezzo
