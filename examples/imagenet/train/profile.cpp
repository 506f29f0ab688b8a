#include "imagenet/train/profile.h"

#include <mezzo/error.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <filesystem>

namespace examples::imagenet {
namespace {

namespace profiler = torch::autograd::profiler;
namespace impl = torch::profiler::impl;

void begin() {
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO, /*report_input_shapes=*/true);
  std::set<impl::ActivityType> activities{impl::ActivityType::CPU};
  if (torch::cuda::is_available()) activities.insert(impl::ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

void write(const std::string& file) {
  profiler::disableProfiler()->save(file);
  std::error_code failure;
  if (std::filesystem::file_size(file, failure) == 0 || failure)
    throw mezzo::Error("cannot write the trace '" + file + "'");
}

}  // namespace

bool Profile::is_over() {
  if (first_ < 0) return false;
  const std::int64_t step = step_++;
  if (step == first_ && !file_.empty()) begin();
  if (step < first_ + kSteps) return false;
  if (!file_.empty()) write(file_);
  return true;
}

}  // namespace examples::imagenet
