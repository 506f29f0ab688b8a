#include <algorithm>
#include <string_view>
#include <thread>

#include "mezzo/report.h"
#include "mezzo/version.h"
#include "platform/machine.h"

namespace mezzo::report {

namespace {

// The flags that decide which kernels run and whether a low type is fast; the system's names.
constexpr std::string_view kInstructionSets[] = {
    "f16c",     "fma",      "avx2",        "avx_vnni",    "avx512f",     "avx512bw",
    "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
    "amx_bf16", "amx_fp16", "asimd",       "asimdhp",     "bf16",        "sve"};

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.processor = platform::processor_name();
  const std::vector<std::string> flags = platform::processor_flags();
  for (const std::string_view set : kInstructionSets) {
    if (std::ranges::find(flags, set) != flags.end()) machine.instruction_sets.emplace_back(set);
  }
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  machine.versions = {{"mezzo", version()}, {"compiler", compiler()}};
  return machine;
}

}  // namespace mezzo::report
