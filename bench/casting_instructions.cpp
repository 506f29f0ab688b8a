#include "casting_instructions.h"

#include <torch/torch.h>

#include "callgrind.h"
#include "mezzo/autocast.h"
#include "mezzo/hardware.h"
#include "native_autocast.h"

namespace mezzo::bench {
namespace {

constexpr int kCalls = 50;

template <typename F>
void count(const std::string& name, F call) {
  count_instructions(name, kCalls, call);
}

template <typename F>
void count_scopes(const std::string& name, F call) {
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    count(name + "/ours", call);
  }
  const NativeAutocast scope(at::kBFloat16);
  count(name + "/native", call);
}

template <typename F>
void count_all(const std::string& name, F call) {
  count(name + "/off", call);
  count_scopes(name, call);
}

}  // namespace

int count_casting_instructions() {
  take_memory_from_free_blocks();
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  set_compute_mode(at::kBFloat16, ComputeMode::kNative);
  const at::Tensor low = torch::ones({4, 4}, at::kBFloat16);
  const at::Tensor cube = torch::ones({1, 4, 4}, at::kBFloat16);
  const at::Tensor image = torch::ones({1, 2, 4, 4}, at::kBFloat16);
  const at::Tensor filter = torch::ones({2, 2, 3, 3}, at::kBFloat16);
  const at::Tensor wide = torch::ones({4, 4});
  const at::Tensor weight = torch::ones({4, 4}).requires_grad_();
  count_all("not listed: mul", [&] { return low.mul(low); });
  count_all("mm", [&] { return torch::mm(low, low); });
  count_all("bmm", [&] { return torch::bmm(cube, cube); });
  count_all("linear", [&] { return at::linear(low, low); });
  count_all("conv2d", [&] { return at::conv2d(image, filter); });
  count_all("cat", [&] { return torch::cat({low, low}); });
  count_all("softmax", [&] { return torch::softmax(wide, 1); });
  const at::AutoGradMode grad(true);  // weights are cached where a gradient may be wanted
  const at::Tensor low_with_history = low.clone().requires_grad_() * 1;
  count_scopes("low argument: mm", [&] { return torch::mm(low, low_with_history); });
  count_scopes("cached weight: mm", [&] { return torch::mm(low, weight); });
  return 0;
}

}  // namespace mezzo::bench
