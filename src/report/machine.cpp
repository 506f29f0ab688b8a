#include <array>
#include <string_view>
#include <thread>

#include "core/platform.h"
#include "mezzo/report.h"
#include "mezzo/version.h"

namespace mezzo::report {

namespace {

// Those that decide which kernels run and whether a low type is fast; the system's names.
constexpr std::array<std::string_view, 10> kInstructionSets{
    "avx2",        "fma",         "f16c",        "avx512f",  "avx512bw",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16"};

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
    for (const std::string& flag : flags) {
      if (flag == set) machine.instruction_sets.push_back(flag);
    }
  }
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  machine.versions = {{"mezzo", version()}, {"compiler", compiler()}};
  return machine;
}

}  // namespace mezzo::report
