#include "bridge/proofs.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/known_answers.h"
#include "mezzo/messages.h"

namespace mezzo::bridge {
namespace {

/// While it lives, operators are LibTorch's own, without autograd and without what a scope makes of
/// them on this thread.
class PlainOperators {
 public:
  PlainOperators()
      : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
              c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

 private:
  at::NoGradGuard no_grad_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

bool Proofs::has_functions(const kernels::cuda::Interface& functions, c10::DeviceType type) const {
  // From here on the table holds pointers alone.
  constexpr std::size_t kFirst = offsetof(kernels::cuda::Interface, device_count);
  const auto* const bytes = reinterpret_cast<const char*>(&functions);
  const auto* const own = reinterpret_cast<const char*>(&functions_);
  return type == type_ && std::equal(bytes + kFirst, bytes + sizeof functions, own + kFirst);
}

Proofs& Proofs::of(const kernels::cuda::Interface& functions, c10::DeviceType type) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::vector<std::unique_ptr<Proofs>>;
  const std::lock_guard lock(mutex);
  for (const auto& proofs : all) {
    if (proofs->has_functions(functions, type)) return *proofs;
  }
  return *all.emplace_back(std::make_unique<Proofs>(functions, type));
}

bool Proofs::hold(const at::Device& device, Family family) {
  auto& verdict =
      verdicts_[static_cast<std::size_t>(index_of(device))][static_cast<std::size_t>(family)];
  switch (verdict.load(std::memory_order_acquire)) {
    case Verdict::kHolds:
      return true;
    case Verdict::kFails:
      return false;
    case Verdict::kUnknown:
      break;
  }
  return make(device, family, verdict);
}

bool Proofs::make(const at::Device& device, Family family, std::atomic<Verdict>& verdict) {
  if (functions_.capture(current_stream(device)) != 0) return false;
  // Steps look at gradients and measure them by lists.
  if (family == Family::kSteps && !hold(device, Family::kLists)) return false;
  const std::lock_guard lock(making_);
  if (verdict != Verdict::kUnknown) return verdict == Verdict::kHolds;
  std::string difference;
  try {
    const PlainOperators plain;
    const c10::DeviceGuard guard(device);
    difference = disagreement(functions_, device, family);
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const std::exception& error) {
    difference = first_line(error.what());
  }
  if (!difference.empty()) {
    {
      const std::lock_guard lock_differences(mutex_);
      differences_[{device.index(), family}] = difference;
    }
    send_message(c10::str("mezzo: our kernels for ", name_of(family), " are not used on ", device,
                          ": ", difference, ". LibTorch's operators do their work"));
  }
  verdict.store(difference.empty() ? Verdict::kHolds : Verdict::kFails, std::memory_order_release);
  return difference.empty();
}

std::string Proofs::difference(const at::Device& device, Family family) const {
  const std::lock_guard lock(mutex_);
  const auto found = differences_.find({device.index(), family});
  return found == differences_.end() ? "" : found->second;
}

void prove_kernels(at::TensorList tensors) {
  std::set<std::string> seen;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.device().str()).second) continue;
    for (const Family family : kFamilies) static_cast<void>(has_kernels(tensor.device(), family));
  }
}

}  // namespace mezzo::bridge
