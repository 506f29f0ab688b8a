#include "kernels.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "guard.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

thread_local int kernels_here = 0;

c10::DispatchKeySet excluded_in_kernels() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
}

}  // namespace

struct InKernel::Guards {
  c10::impl::ForceDispatchKeyGuard keys{
      c10::default_included_set - c10::autograd_dispatch_keyset_with_ADInplaceOrView,
      c10::default_excluded_set | excluded_in_kernels()};
  at::NoGradGuard no_grad;
  at::DisableRecordFunctionGuard unseen;
};

InKernel::InKernel() : guards_(std::make_unique<Guards>()) {
  ++kernels_here;
}

InKernel::~InKernel() {
  --kernels_here;
}

bool InKernel::here() {
  return kernels_here > 0;
}

bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cuda();
}

Place::Place(const at::Tensor& tensor)
    : address(Memory::all().for_kernels(tensor.unsafeGetTensorImpl()->data())),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      type(tensor.scalar_type()),
      negative(tensor.is_neg()),
      conjugate(tensor.is_conj()) {}

at::Tensor Place::tensor() const {
  static char nothing = 0;
  at::Tensor made = at::from_blob(address == nullptr ? &nothing : address, sizes, strides,
                                  at::TensorOptions(at::kCPU).dtype(type));
  made._set_neg(negative);
  if (conjugate) made._set_conj(true);
  return made;
}

void queue_kernel(const std::vector<at::Tensor>& tensors, Kernel kernel) {
  std::vector<std::optional<Place>> places;
  std::optional<int> device;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      places.emplace_back();
      continue;
    }
    TORCH_CHECK(is_on_device(tensor) && device.value_or(tensor.get_device()) == tensor.get_device(),
                "Expected all tensors to be on the same device (pretend CUDA)");
    device = static_cast<int>(tensor.get_device());
    places.emplace_back(Place(tensor));
  }
  TORCH_CHECK(device.has_value(), "pretend CUDA: a kernel without a tensor");
  Streams::all().queue(current_stream(*device),
                       [places = std::move(places), kernel = std::move(kernel)] {
                         const InKernel here;
                         std::vector<at::Tensor> there;
                         for (const auto& place : places) {
                           there.push_back(place ? place->tensor() : at::Tensor());
                         }
                         kernel(there);
                       });
}

}  // namespace mezzo::pretend
