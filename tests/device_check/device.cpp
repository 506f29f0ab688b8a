#include "device_check/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <filesystem>

#include "core/raise.h"
#include "kernels/cuda_library.h"
#include "platform/libraries.h"
#include "support/built_files.h"

namespace mezzo::device_check {
namespace {

const CudaPart* find_part() {
#ifdef MEZZO_DEVICE_CHECK_CUDA
  std::string why;
  void* library =
      platform::open_library(testing_support::built_file(MEZZO_DEVICE_CHECK_CUDA), &why);
  if (library == nullptr) raise("device_check", "the part for CUDA does not load: ", why);
  const auto entry = reinterpret_cast<decltype(&mezzo_device_check_cuda)>(
      platform::find_symbol(library, "mezzo_device_check_cuda"));
  return entry();
#else
  return nullptr;
#endif
}

// Before LibTorch is asked for a device: it asks once whether its CUDA part is there.
void load_cuda() {
#ifdef MEZZO_CUDA_LIBRARY
  kernels::set_cuda_library_path(testing_support::built_file(MEZZO_CUDA_LIBRARY));
#endif
  std::string why;
  if (platform::open_library("libtorch_cuda.so", &why) == nullptr) raise("device_check", why);
  if (!at::hasCUDA()) raise("device_check", "LibTorch finds no CUDA device");
  if (kernels::cuda_library() == nullptr) raise("device_check", kernels::why_no_cuda_library());
}

}  // namespace

Device::Device(const std::string& name, bool small) : place_(name), small_(small) {
  if (!is_cuda()) return;
  if (!place_.has_index()) place_.set_index(0);
  // A device that a test pretends is there already, and has no part for CUDA. LibTorch is not
  // asked: it would keep to the answer.
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return;
  load_cuda();
  // Products in float are compared with float64.
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  cuda_ = find_part();
}

void Device::wait() const {
  if (is_cuda()) c10::impl::VirtualGuardImpl(place_.type()).synchronizeDevice(place_.index());
}

c10::Stream Device::new_stream() const {
  const c10::impl::VirtualGuardImpl guard(place_.type());
  return is_cuda() ? guard.getStreamFromGlobalPool(place_) : guard.getStream(place_);
}

Recording::Recording(const Device& device, const std::function<void()>& work)
    : cuda_(device.cuda()) {
  if (cuda_ == nullptr) {
    work_ = work;
    return;
  }
  graph_ = cuda_->begin_graph();
  try {
    work();
  } catch (...) {
    try {
      cuda_->end_graph(graph_);  // the stream would stay in its capture
    } catch (const std::exception&) {
      // The first error says why.
    }
    cuda_->free_graph(graph_);
    throw;
  }
  cuda_->end_graph(graph_);
}

Recording::~Recording() {
  if (graph_ != nullptr) cuda_->free_graph(graph_);
}

void Recording::play() const {
  if (graph_ != nullptr) {
    cuda_->play_graph(graph_);
  } else {
    work_();
  }
}

NoWaits::NoWaits(const Device& device) : cuda_(device.cuda()) {
  if (cuda_ != nullptr) cuda_->set_waits(Waits::kErrors);
}

NoWaits::~NoWaits() {
  if (cuda_ != nullptr) cuda_->set_waits(Waits::kAllowed);
}

struct CountedWaits::Counter final : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") != std::string::npos) ++count;
  }
  int count = 0;
  std::unique_ptr<c10::WarningUtils::WarningHandlerGuard> guard;
};

CountedWaits::CountedWaits(const Device& device)
    : cuda_(device.cuda()), counter_(std::make_unique<Counter>()) {
  counter_->guard = std::make_unique<c10::WarningUtils::WarningHandlerGuard>(counter_.get());
  if (cuda_ != nullptr) cuda_->set_waits(Waits::kWarnings);
}

CountedWaits::~CountedWaits() {
  if (cuda_ != nullptr) cuda_->set_waits(Waits::kAllowed);
}

int CountedWaits::count() const {
  return counter_->count;
}

}  // namespace mezzo::device_check
