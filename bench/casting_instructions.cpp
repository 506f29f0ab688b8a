#include "casting_instructions.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>
#include <valgrind/callgrind.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/raise.h"
#include "mezzo/autocast.h"
#include "mezzo/hardware.h"

namespace mezzo::bench {
namespace {

constexpr int kCalls = 50;

// LibTorch's own autocast, as a program would switch it on.
class NativeAutocast {
 public:
  NativeAutocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~NativeAutocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

template <typename F>
void count(const std::string& name, F call) {
  for (int i = 0; i < 3; ++i) call();
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < kCalls; ++i) call();
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

template <typename F>
void count_scopes(const std::string& name, F call) {
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    count(name + "/ours", call);
  }
  const NativeAutocast scope;
  count(name + "/native", call);
}

template <typename F>
void count_all(const std::string& name, F call) {
  count(name + "/off", call);
  count_scopes(name, call);
}

}  // namespace

int count_casting_instructions() {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  set_compute_mode(at::kBFloat16, ComputeMode::kNative);
  const at::Tensor low = torch::ones({4, 4}, at::kBFloat16);
  const at::Tensor cube = torch::ones({1, 4, 4}, at::kBFloat16);
  const at::Tensor image = torch::ones({1, 2, 4, 4}, at::kBFloat16);
  const at::Tensor filter = torch::ones({2, 2, 3, 3}, at::kBFloat16);
  const at::Tensor wide = torch::ones({4, 4});
  const at::Tensor weight = torch::ones({4, 4}).requires_grad_();
  count_all("not listed: mul", [&] { return low.mul(low); });
  count_all("mm", [&] { return torch::mm(low, low); });
  count_all("bmm", [&] { return torch::bmm(cube, cube); });
  count_all("linear", [&] { return at::linear(low, low); });
  count_all("conv2d", [&] { return at::conv2d(image, filter); });
  count_all("cat", [&] { return torch::cat({low, low}); });
  count_all("softmax", [&] { return torch::softmax(wide, 1); });
  const at::AutoGradMode grad(true);  // weights are cached where a gradient may be wanted
  const at::Tensor low_with_history = low.clone().requires_grad_() * 1;
  count_scopes("low argument: mm", [&] { return torch::mm(low, low_with_history); });
  count_scopes("cached weight: mm", [&] { return torch::mm(low, weight); });
  return 0;
}

namespace {

std::string command_line(const std::filesystem::path& folder) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return "valgrind --tool=callgrind --callgrind-out-file='" + (folder / "counts").string() + "' '" +
         program + "' --count-instructions yes >'" + (folder / "log").string() + "' 2>&1";
}

// A dump says its reason in "desc: Trigger: Client Request: NAME" and its sum in "totals: N".
std::optional<std::pair<std::string, double>> read_dump(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string name;
  constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kTrigger)) name = line.substr(kTrigger.size());
    if (!name.empty() && line.starts_with("totals: "))
      return std::pair(name, std::stod(line.substr(8)) / kCalls);
    if (!name.empty() && line.starts_with("summary: "))
      return std::pair(name, std::stod(line.substr(9)) / kCalls);
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, double> casting_instructions() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "mezzo_bench_callgrind";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  if (std::system(command_line(folder).c_str()) != 0) {
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
