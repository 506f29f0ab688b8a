#include "device_check/rates.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace mezzo::device_check {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double counted = 0;  // of the one count that runs at a time

double extent(const at::Tensor& tensor, std::int64_t dimension) {
  return static_cast<double>(tensor.size(dimension));
}

/// Operations of a call for each element of its result, and beside them.
struct Operations : at::ObserverContext {
  double per_element = 0, besides = 0;
};

// Leaves of forward passes; a causal attention looks at half of all pairs. Arguments can be seen
// at the begin of a call alone, results at its end.
std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const std::string name = function.name();
  const auto inputs = function.inputs();
  auto counts = std::make_unique<Operations>();
  if (name == "aten::convolution") {
    const at::Tensor weight = inputs[1].toTensor();
    counts->per_element = 2.0 * static_cast<double>(weight.numel()) / extent(weight, 0);
  } else if (name == "aten::mm" || name == "aten::addmm") {
    counts->per_element = 2.0 * extent(inputs[name == "aten::mm" ? 0 : 1].toTensor(), 1);
  } else if (name == "aten::scaled_dot_product_attention") {
    const at::Tensor query = inputs[0].toTensor();
    const double pairs = extent(query, 2) * extent(inputs[1].toTensor(), 2);
    counts->besides = 4.0 * extent(query, 0) * extent(query, 1) * extent(query, 3) * pairs *
                      (inputs[5].toBool() ? 0.5 : 1.0);
  } else {
    return nullptr;
  }
  return counts;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto* counts = static_cast<const Operations*>(context);
  const auto outputs = function.outputs();
  counted +=
      counts->besides + counts->per_element * static_cast<double>(outputs[0].toTensor().numel());
}

}  // namespace

double seconds_of(const Device& device, const std::function<void()>& work, double turn, int turns) {
  work();
  device.wait();
  const double probe = now();
  work();
  device.wait();
  const auto calls = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(turn / std::max(now() - probe, 1e-7)), 1, 10000);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < turns; ++i) {
    const double before = now();
    for (std::int64_t call = 0; call < calls; ++call) work();
    device.wait();
    least = std::min(least, (now() - before) / static_cast<double>(calls));
  }
  return least;
}

double copy_rate(const Device& device) {
  const std::int64_t elements = device.is_small() ? std::int64_t{1} << 22 : std::int64_t{1} << 28;
  const at::Tensor from = at::ones({elements}, at::TensorOptions(device.place()));
  const at::Tensor to = at::empty_like(from);
  return 2.0 * static_cast<double>(from.nbytes()) / seconds_of(device, [&] { to.copy_(from); });
}

double matrix_rate(const Device& device, at::ScalarType type) {
  const std::int64_t side = device.is_small() ? 256 : 8192;
  const auto options = at::TensorOptions(device.place()).dtype(type);
  const at::Tensor a = at::randn({side, side}, options);
  const at::Tensor b = at::randn({side, side}, options);
  at::Tensor result = at::empty({side, side}, options);
  const auto n = static_cast<double>(side);
  return 2 * n * n * n / seconds_of(device, [&] { at::mm_out(result, a, b); });
}

double count_operations(const std::function<void()>& forward) {
  counted = 0;
  const torch::NoGradGuard no_grad;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                                     .needsInputs(true)
                                                     .needsOutputs(true)
                                                     .scopes({at::RecordScope::FUNCTION}));
  forward();
  at::removeCallback(handle);
  return counted;
}

}  // namespace mezzo::device_check
