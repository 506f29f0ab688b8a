// Copies between the host and the devices, and reads of one number: where a host waits.
#include <ATen/Functions.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "counts.h"
#include "guard.h"
#include "hooks.h"
#include "kernels.h"
#include "memory.h"

namespace mezzo::pretend {
namespace {

void run_copy(const at::Tensor& to, const at::Tensor& from) {
  queue_kernel({to, from}, [](const std::vector<at::Tensor>& t) { t[0].copy_(t[1]); });
}

// Both devices' streams wait for each other, as LibTorch has it.
void copy_between(const at::Tensor& to, const at::Tensor& from) {
  const StreamName there = current_stream(to.get_device());
  const StreamName here = current_stream(from.get_device());
  Streams::all().wait_on_stream(here, Streams::all().mark(there));
  Streams::all().queue(here, [to = Place(to), from = Place(from)] {
    const InKernel kernel;
    to.tensor().copy_(from.tensor());
  });
  Streams::all().wait_on_stream(there, Streams::all().mark(here));
}

void copy_to_device(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  count_copy_to_device(static_cast<std::int64_t>(from.nbytes()));
  const StreamName stream = current_stream(to.get_device());
  const std::shared_ptr<void> pinned = pinned_piece(from.const_data_ptr());
  if (pinned && non_blocking) {
    // Read when the device gets there, not now.
    const at::Tensor numbers = at::from_blob(const_cast<void*>(from.const_data_ptr()), from.sizes(),
                                             from.strides(), from.options());
    Streams::all().queue(stream, [to = Place(to), numbers, pinned] {
      const InKernel kernel;
      to.tensor().copy_(numbers);
    });
    return;
  }
  if (!pinned && Streams::all().capture_of(stream)) {
    Streams::all().refuse_in_capture("pageable memory is copied to a device");
  }
  const at::Tensor numbers = from.detach().clone();
  Streams::all().queue(stream, [to = Place(to), numbers] {
    const InKernel kernel;
    to.tensor().copy_(numbers);
  });
  if (non_blocking) return;
  Streams::all().refuse_in_capture("a blocking copy to a device");
  count_wait(Wait::kCopy, "copy to a device");
  Streams::all().run_stream(stream);
}

void copy_to_host(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  count_copy_to_host(static_cast<std::int64_t>(to.nbytes()));
  const StreamName stream = current_stream(from.get_device());
  void* address = to.mutable_data_ptr();
  const std::shared_ptr<void> pinned = pinned_piece(address);
  const at::Tensor numbers = at::from_blob(address, to.sizes(), to.strides(), to.options());
  if (pinned && non_blocking) {
    Streams::all().queue(stream, [numbers, from = Place(from), pinned] {
      const InKernel kernel;
      at::Tensor(numbers).copy_(from.tensor());
    });
    return;
  }
  Streams::all().refuse_in_capture("a copy to the host");
  count_wait(Wait::kCopy, "copy to the host");
  Streams::all().run_stream(stream);
  const InKernel kernel;
  at::Tensor(numbers).copy_(Place(from).tensor());
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source) || self.numel() == 0) return self;
  const at::Tensor from = source.expand_as(self);
  if (is_on_device(self) && is_on_device(from)) {
    if (self.get_device() == from.get_device()) {
      run_copy(self, from);
    } else {
      copy_between(self, from);
    }
  } else if (is_on_device(self)) {
    copy_to_device(self, from, non_blocking);
  } else {
    copy_to_host(self, from, non_blocking);
  }
  return self;
}

at::Scalar number_of(const at::Tensor& self) {
  Streams::all().refuse_in_capture("a number is read");
  count_wait(Wait::kScalar, "number");
  count_copy_to_host(static_cast<std::int64_t>(self.itemsize()));
  Streams::all().run_stream(current_stream(self.get_device()));
  const InKernel kernel;
  return at::_local_scalar_dense(Place(self).tensor());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_local_scalar_dense", TORCH_FN(number_of));
}

}  // namespace
}  // namespace mezzo::pretend
