#include "convert/standard/onnxruntime_kernels.h"

#include <algorithm>
#include <utility>

namespace mezzo::convert {
namespace {

#include "convert/standard/onnxruntime_kernels.inc"

using Version = std::pair<std::string_view, int>;

constexpr Version version_of(const KernelGap& gap) {
  return {gap.op, gap.since};
}

static_assert(std::ranges::is_sorted(kKernelGaps, {}, version_of),
              "bisected: keep sorted by operator and version");

}  // namespace

std::span<const KernelGap> kernel_gaps() {
  return kKernelGaps;
}

std::span<const KernelGap> kernel_gaps(std::string_view op, int since) {
  const Version version(op, since);
  return {std::ranges::lower_bound(kKernelGaps, version, {}, version_of),
          std::ranges::upper_bound(kKernelGaps, version, {}, version_of)};
}

}  // namespace mezzo::convert
