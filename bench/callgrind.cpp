#include "callgrind.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "core/raise.h"

#ifdef MEZZO_WITH_VALGRIND
#include <valgrind/callgrind.h>
#endif

namespace mezzo::bench {
namespace {

class FreeBlocks final : public at::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes > kBlock) return fallback_.allocate(bytes);
    if (free_.empty()) free_.push_back(::operator new(kBlock, kAlignment));
    void* const block = free_.back();
    free_.pop_back();
    return {block, block, &give_back, at::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr std::size_t kBlock = 4096;
  static constexpr std::align_val_t kAlignment{64};
  static void give_back(void* block) { free_.push_back(block); }
  static inline std::vector<void*> free_;
  at::Allocator& fallback_ = *c10::GetDefaultCPUAllocator();
};

std::string command_line(const std::filesystem::path& folder, const std::string& what) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return "valgrind --tool=callgrind --callgrind-out-file='" + (folder / "counts").string() + "' '" +
         program + "' --count-instructions " + what + " >'" + (folder / "log").string() + "' 2>&1";
}

// A dump says its reason in "desc: Trigger: Client Request: NAME@CALLS" and its sum in "totals: N".
std::optional<std::pair<std::string, double>> read_dump(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string name;
  double calls = 1;
  const auto per_call = [&](const std::string& total) {
    return std::pair(name, std::stod(total) / calls);
  };
  constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";
  for (std::string line; std::getline(in, line);) {
    if (const std::size_t at = line.rfind('@'); line.starts_with(kTrigger) && at != line.npos) {
      name = line.substr(kTrigger.size(), at - kTrigger.size());
      calls = std::stod(line.substr(at + 1));
    }
    if (!name.empty() && line.starts_with("totals: ")) return per_call(line.substr(8));
    if (!name.empty() && line.starts_with("summary: ")) return per_call(line.substr(9));
  }
  return std::nullopt;
}

}  // namespace

void start_counting() {
#ifdef MEZZO_WITH_VALGRIND
  CALLGRIND_ZERO_STATS;
#endif
}

void write_counts([[maybe_unused]] const std::string& label) {
#ifdef MEZZO_WITH_VALGRIND
  CALLGRIND_DUMP_STATS_AT(label.c_str());
#endif
}

void take_memory_from_free_blocks() {
  static FreeBlocks blocks;
  c10::SetCPUAllocator(&blocks);
}

std::map<std::string, double> counted_instructions(const std::string& what) {
#ifndef MEZZO_WITH_VALGRIND
  raise("bench",
        "counting instructions needs valgrind, and its header was not there when this "
        "program was built; install valgrind and build again");
#endif
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("mezzo_bench_callgrind_" + what);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  if (std::system(command_line(folder, what).c_str()) != 0) {
    raise("bench", "counting instructions needs valgrind, and it failed; its words are in ",
          (folder / "log").string());
  }
  std::map<std::string, double> counts;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (const auto dump = read_dump(file.path())) counts.insert(*dump);
  }
  std::filesystem::remove_all(folder);
  if (counts.empty()) raise("bench", "callgrind wrote no counts");
  return counts;
}

}  // namespace mezzo::bench
