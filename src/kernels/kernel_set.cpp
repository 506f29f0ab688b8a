#include "kernels/kernel_set.h"

#include <atomic>

#include "core/raise.h"

namespace mezzo::kernels {
namespace {

std::vector<const KernelSet*> probe() {
  std::vector<const KernelSet*> sets{&baseline::kernel_set()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Clang 14 cannot ask for F16C; every processor with AVX2 has it.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) sets.push_back(&avx2::kernel_set());
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&avx512::kernel_set());
  }
#endif
  return sets;
}

const std::vector<const KernelSet*>& usable() {
  static const std::vector<const KernelSet*> sets = probe();
  return sets;
}

std::atomic<const KernelSet*> chosen{nullptr};

}  // namespace

std::span<const KernelSet* const> usable_kernel_sets() {
  return usable();
}

const KernelSet& kernels() {
  const KernelSet* set = chosen.load(std::memory_order_relaxed);
  return set != nullptr ? *set : *usable().back();
}

void choose_kernel_set(std::string_view name) {
  std::string names;
  for (const KernelSet* set : usable()) {
    if (set->name == name) {
      chosen.store(set, std::memory_order_relaxed);
      return;
    }
    names += (names.empty() ? "" : ", ") + std::string(set->name);
  }
  raise<ConfigError>("set_kernel_set", "'", name,
                     "' is not a kernel set of this processor; expected one of ", names);
}

}  // namespace mezzo::kernels
