#include "parallel/marked_batch_norms.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_batch_norm_impl_index_ops.h>
#include <ATen/ops/batch_norm_ops.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "mezzo/sync_batch_norm.h"
#include "parallel/sync_batch_norm.h"

namespace mezzo::parallel {
namespace {

// A key that LibTorch has no kernels on and leaves to other libraries. It stands above the Autocast
// keys and is not among those that casts exclude: what a casting layer hands on comes here again.
constexpr c10::DispatchKey kKey = c10::DispatchKey::DeferredInit;

using MaybeTensor = std::optional<at::Tensor>;

class Marks {
 public:
  void set(const at::Tensor& known_by, const BatchNormMark& mark) {
    const std::unique_lock lock(mutex_);
    std::erase_if(marks_, [](const auto& item) { return item.second.tensor.expired(); });
    marks_.insert_or_assign(known_by.unsafeGetTensorImpl(),
                            Entry{Weak(known_by.getIntrusivePtr()), mark});
    any_.store(true, std::memory_order_release);
  }

  bool any() const noexcept { return any_.load(std::memory_order_acquire); }

  // An entry keeps its tensor's address from being used again, so that the address identifies it.
  std::optional<BatchNormMark> find(const MaybeTensor& running_mean,
                                    const MaybeTensor& weight) const {
    const MaybeTensor& known_by =
        running_mean.has_value() && running_mean->defined() ? running_mean : weight;
    if (!known_by.has_value() || !known_by->defined()) return std::nullopt;
    const std::shared_lock lock(mutex_);
    const auto found = marks_.find(known_by->unsafeGetTensorImpl());
    if (found == marks_.end()) return std::nullopt;
    return found->second.mark;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    Weak tensor;
    BatchNormMark mark;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Entry> marks_;
  std::atomic<bool> any_{false};
};

Marks& marks() {
  // Never destroyed: operators may run while static objects are.
  static auto* const instance = new Marks;  // NOLINT(cppcoreguidelines-owning-memory)
  return *instance;
}

// The norm, or nothing if LibTorch's own is right.
std::optional<at::Tensor> synchronised_norm(const at::Tensor& input, const MaybeTensor& weight,
                                            const MaybeTensor& bias,
                                            const MaybeTensor& running_mean,
                                            const MaybeTensor& running_var, bool training,
                                            double momentum, double eps) {
  const std::optional<BatchNormMark> mark = marks().find(running_mean, weight);
  if (!mark) return std::nullopt;
  BatchNormCall call;
  call.where = "a batch norm that convert_syncbn_model marked";
  if (training) call.group = statistics_group(mark->group);
  if (!call.group && !mark->channel_last) return std::nullopt;
  call.x = input;
  call.channel_last = mark->channel_last;
  call.weight = weight.value_or(at::Tensor());
  call.bias = bias.value_or(at::Tensor());
  call.running_mean = running_mean.value_or(at::Tensor());
  call.running_var = running_var.value_or(at::Tensor());
  call.batch_statistics = training;
  if (training && call.running_mean.defined()) call.momentum = momentum;
  call.eps = eps;
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  return sync_batch_norm(call);
}

c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

// LibTorch's composite batch norm, after which casts have been made: this is what is replaced.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, std::int64_t> inner_batch_norm(
    c10::DispatchKeySet keys, const at::Tensor& input, const MaybeTensor& weight,
    const MaybeTensor& bias, const MaybeTensor& running_mean, const MaybeTensor& running_var,
    bool training, double momentum, double eps, bool cudnn_enabled) {
  const auto norm =
      synchronised_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
  if (!norm) {
    return at::_ops::_batch_norm_impl_index::redispatch(below(keys), input, weight, bias,
                                                        running_mean, running_var, training,
                                                        momentum, eps, cudnn_enabled);
  }
  const at::Tensor nothing = at::empty({0}, input.options().requires_grad(false));
  return {*norm, nothing, nothing, nothing, 0};
}

// An empty batch, which LibTorch may answer before it asks for the inner one, must still report
// to the other ranks that it is empty.
at::Tensor outer_batch_norm(c10::DispatchKeySet keys, const at::Tensor& input,
                            const MaybeTensor& weight, const MaybeTensor& bias,
                            const MaybeTensor& running_mean, const MaybeTensor& running_var,
                            bool training, double momentum, double eps, bool cudnn_enabled) {
  if (input.numel() == 0) {
    if (const auto norm = synchronised_norm(input, weight, bias, running_mean, running_var,
                                            training, momentum, eps)) {
      return *norm;
    }
  }
  return at::_ops::batch_norm::redispatch(below(keys), input, weight, bias, running_mean,
                                          running_var, training, momentum, eps, cudnn_enabled);
}

void install() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(kKey)) {
    raise<UnsupportedError>("convert_syncbn_model",
                            "another library uses the dispatch key DeferredInit; batch norms that "
                            "are fields of modules cannot be synchronised in this process");
  }
  // Registered for as long as the process lives.
  static auto* const handles =  // NOLINT(cppcoreguidelines-owning-memory)
      new std::vector<c10::RegistrationHandleRAII>;
  handles->push_back(
      dispatcher.registerFallback(kKey, c10::KernelFunction::makeFallthrough(), "mezzo"));
  handles->push_back(dispatcher.registerImpl(
      {"aten::_batch_norm_impl_index", ""}, kKey,
      c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(inner_batch_norm)), std::nullopt,
      nullptr, "mezzo"));
  handles->push_back(dispatcher.registerImpl(
      {"aten::batch_norm", ""}, kKey,
      c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(outer_batch_norm)), std::nullopt,
      nullptr, "mezzo"));
}

}  // namespace

void mark_batch_norm(const at::Tensor& known_by, const BatchNormMark& mark) {
  static std::once_flag installed;
  std::call_once(installed, install);
  marks().set(known_by, mark);
}

namespace detail {

SynchronisedCalls::SynchronisedCalls() {
  if (!marks().any() || c10::impl::tls_is_dispatch_key_included(kKey)) return;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
  switched_ = true;
}

SynchronisedCalls::~SynchronisedCalls() {
  if (switched_) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

}  // namespace detail
}  // namespace mezzo::parallel
