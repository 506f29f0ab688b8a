// Tensors that are made without a device, on one that is chosen: for tests that name none.
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/repeat_native.h>
#include <ATen/ops/tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "device.h"
#include "kernels.h"

namespace mezzo::pretend {
namespace {

constexpr int kNone = -1;

int at_start() {
  const char* set = std::getenv("MEZZO_PRETEND_DEFAULT_DEVICE");
  return set == nullptr || *set == '\0' ? kNone : std::atoi(set);
}

std::atomic<int>& chosen() {
  static std::atomic<int> device = at_start();
  return device;
}

// An operator of LibTorch that makes numbers for itself, which the host reads.
thread_local bool makes_its_own = false;

bool applies_here() {
  return chosen() != kNone && !makes_its_own && !InKernel::here();
}

at::Tensor repeat(const at::Tensor& self, at::IntArrayRef repeats) {
  struct Own {
    Own() { makes_its_own = true; }
    ~Own() { makes_its_own = false; }
  } const own;
  return at::native::repeat(self, repeats);
}

// Does as LibTorch's rows for this key, with the chosen device where none is named.
void make(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  std::optional<at::ScalarType> type;
  std::optional<at::Layout> layout;
  std::optional<at::Device> device;
  bool pinned = false;
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  c10::IValue* where = nullptr;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const std::string& name = arguments[i].name();
    if (name == "device") where = &value;
    if (value.isNone()) continue;
    if (value.isTensor()) device = value.toTensor().device();  // else its own is meant
    if (name == "dtype") type = value.toScalarType();
    if (name == "layout") layout = value.toLayout();
    if (name == "device") device = value.toDevice();
    if (name == "pin_memory") pinned = value.toBool();
  }
  const bool strided = layout.value_or(at::kStrided) == at::kStrided;
  if (where != nullptr && !device && !pinned && strided && applies_here()) {
    device = pretend::device(chosen());
    *where = *device;
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::computeDispatchKey(type, layout, device)), stack);
}

// Literals of tests: nested ones are made on the host by LibTorch's own header, which then moves
// them to the device of their options: the CPU where none is named, or to none beside a type.
void move_literal(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  const bool here = applies_here();
  c10::IValue* where = nullptr;
  bool only_device = true;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const std::string& name = arguments[i].name();
    if (name == "device") {
      where = &value;
    } else if (name == "dtype" || name == "layout") {
      only_device &= value.isNone();
    }
  }
  const at::Tensor self = (*stack)[first].toTensor();
  const bool unnamed = where != nullptr &&
                       (where->isNone() ? !only_device : only_device && where->toDevice().is_cpu());
  if (here && unnamed && self.device().is_cpu() && self.layout() == at::kStrided &&
      !self.requires_grad()) {
    *where = pretend::device(chosen());
  }
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::TESTING_ONLY_GenericMode);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("to.dtype_layout", torch::CppFunction::makeFromBoxedFunction<&move_literal>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("repeat", TORCH_FN(repeat));
}

// Tests run on the thread that loads the library.
struct WatchesLiterals {
  WatchesLiterals() {
    if (chosen() == kNone) return;
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode, true);
  }
};
const WatchesLiterals watches_literals;

template <typename T>
at::Tensor literal(at::ArrayRef<T> values, const at::TensorOptions& options) {
  const auto type = c10::CppTypeToScalarType<T>::value;
  at::Tensor host = at::empty({static_cast<std::int64_t>(values.size())},
                              at::TensorOptions(at::kCPU).dtype(type));
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<T>());
  host = host.to(options.dtype().toScalarType());
  at::Device where = options.device();
  if (!options.has_device() && applies_here()) {
    where = pretend::device(chosen());
  }
  return where.is_cpu() ? host : host.to(where);
}

class Silent final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// The rows take the place of LibTorch's own, which it would warn of.
TORCH_LIBRARY_IMPL(aten, BackendSelect, library) {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::BackendSelect)) continue;
    bool makes = false;
    for (const auto& argument : op->schema().arguments()) makes |= argument.name() == "device";
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (makes) library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&make>());
  }
}

}  // namespace

DefaultDevice::DefaultDevice(at::Device device) : before_(chosen().exchange(device.index())) {}

DefaultDevice::~DefaultDevice() {
  chosen() = before_;
}

}  // namespace mezzo::pretend

// LibTorch's function of this name, which writes to what it makes: found before it.
namespace at {
#define MEZZO_LITERAL(T, name)                                      \
  Tensor tensor(ArrayRef<T> values, const TensorOptions& options) { \
    return mezzo::pretend::literal(values, options);                \
  }
AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, MEZZO_LITERAL)
AT_FORALL_COMPLEX_TYPES(MEZZO_LITERAL)
#undef MEZZO_LITERAL
}  // namespace at
