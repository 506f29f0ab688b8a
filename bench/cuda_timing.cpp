#include "cuda_timing.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/torch.h"
#include "kernels/cuda_library.h"
#include "platform/libraries.h"

namespace mezzo::bench {
namespace {

constexpr double kShortest = 0.05;  // seconds

void wait() {
  c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).synchronizeDevice(0);
}

double seconds_of(const std::function<void()>& function, std::int64_t calls) {
  wait();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) function();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t calls_for(const std::function<void()>& function) {
  for (int warm = 0; warm < 3; ++warm) function();
  const double once = std::max(seconds_of(function, 3) / 3, 1e-7);
  return std::max<std::int64_t>(3, static_cast<std::int64_t>(kShortest / once));
}

}  // namespace

std::string why_no_cuda() {
  // An installed program finds the one beside its libraries.
  if (std::filesystem::exists(MEZZO_CUDA_LIBRARY)) {
    kernels::set_cuda_library_path(MEZZO_CUDA_LIBRARY);
  }
  if (kernels::cuda_library() == nullptr) return kernels::why_no_cuda_library();
  std::string why;
  if (platform::open_library("libtorch_cuda.so", &why) == nullptr) return why;
  return at::hasCUDA() ? "" : "LibTorch finds no CUDA device";
}

Pair interleave_on_cuda(const std::function<void()>& ours, const std::function<void()>& peer,
                        int repeats) {
  const std::int64_t our_calls = calls_for(ours);
  const std::int64_t peer_calls = calls_for(peer);
  return take_turns([&] { return seconds_of(ours, our_calls) / static_cast<double>(our_calls); },
                    [&] { return seconds_of(peer, peer_calls) / static_cast<double>(peer_calls); },
                    repeats);
}

double copy_bandwidth_on_cuda() {
  const at::Tensor from = at::randn({1 << 28}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  const at::Tensor to = at::empty_like(from);
  const auto copy = [&] { to.copy_(from); };
  const Pair pair = interleave_on_cuda(copy, copy, 5);
  return 2.0 * static_cast<double>(from.nbytes()) / std::min(pair.ours, pair.peer);
}

void add_on_cuda(Report& report, const std::string& name, const std::string& peer_name,
                 const Pair& pair, std::optional<double> target, std::optional<double> bytes,
                 double bandwidth) {
  Result result;
  result.name = name;
  result.ours = pair.ours;
  result.peer = pair.peer;
  result.peer_name = peer_name;
  result.spread = pair.spread;
  result.target = target;
  result.bytes = bytes;
  if (bytes) result.share_of_bandwidth = *bytes / pair.ours / bandwidth;
  report.add(result);
}

}  // namespace mezzo::bench
