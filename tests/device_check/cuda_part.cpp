#include "device_check/cuda_part.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <sstream>

namespace mezzo::device_check {
namespace {

using c10::CachingAllocator::StatType;

at::cuda::CUDAGraph* graph_of(void* graph) {
  return static_cast<at::cuda::CUDAGraph*>(graph);
}

const c10::CachingDeviceAllocator::DeviceStats& all_stats(
    c10::CachingDeviceAllocator::DeviceStats& into) {
  into = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return into;
}

std::string describe_card() {
  const cudaDeviceProp* card = at::cuda::getCurrentDeviceProperties();
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::ostringstream text;
  text << card->name << ", capability " << card->major << '.' << card->minor << ", "
       << card->multiProcessorCount << " multiprocessors, " << (card->totalGlobalMem >> 20)
       << " MiB, driver for CUDA " << driver / 1000 << '.' << driver % 1000 / 10 << ", run time "
       << runtime / 1000 << '.' << runtime % 1000 / 10;
  return text.str();
}

constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);

const CudaPart kPart{
    .set_waits =
        [](Waits waits) {
          c10::cuda::warning_state().set_sync_debug_mode(
              static_cast<c10::cuda::SyncDebugMode>(waits));
        },
    .begin_graph = []() -> void* {
      auto* graph = new at::cuda::CUDAGraph;
      graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      return graph;
    },
    .end_graph = [](void* graph) { graph_of(graph)->capture_end(); },
    .play_graph = [](void* graph) { graph_of(graph)->replay(); },
    .free_graph = [](void* graph) { delete graph_of(graph); },
    .peak_bytes =
        [] {
          c10::CachingDeviceAllocator::DeviceStats stats;
          return static_cast<std::int64_t>(all_stats(stats).allocated_bytes[kAll].peak);
        },
    .held_bytes =
        [] {
          c10::CachingDeviceAllocator::DeviceStats stats;
          return static_cast<std::int64_t>(all_stats(stats).allocated_bytes[kAll].current);
        },
    .reset_peak =
        [] { c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device()); },
    .empty_cache = [] { c10::cuda::CUDACachingAllocator::emptyCache(); },
    .describe = describe_card,
};

}  // namespace
}  // namespace mezzo::device_check

extern "C" __attribute__((visibility("default"))) const mezzo::device_check::CudaPart*
mezzo_device_check_cuda() {
  return &mezzo::device_check::kPart;
}
