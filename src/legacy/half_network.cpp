#include "mezzo/half_network.h"

#include "amp/model_values.h"
#include "amp/module_types.h"
#include "casting/scope.h"
#include "core/raise.h"
#include "core/scalar_type.h"
#include "core/torch.h"

namespace mezzo::fp16_utils {
namespace {

void change_type(at::Tensor& tensor, at::ScalarType type) {
  // A gradient of another type than its tensor would be refused.
  const at::Tensor grad = tensor.grad();  // NOLINT(performance-unnecessary-copy-initialization)
  tensor.mutable_grad().reset();
  tensor.set_data(tensor.detach().to(type));
  if (grad.defined()) tensor.mutable_grad() = grad.to(type);
}

void check_type(std::string_view where, at::ScalarType type) {
  if (is_network_type(type)) return;
  raise<ConfigError>(where, "got the type ", type, "; expected ",
                     floating_type_names(&DTypeRow::torch_name, " or "));
}

}  // namespace

void BN_convert_float(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  for (const auto& each : module.modules(/*include_self=*/false)) {
    if (mezzo::amp::detail::is_batch_norm(*each)) convert_module(*each, at::kFloat);
  }
  if (mezzo::amp::detail::is_batch_norm(module)) convert_module(module, at::kFloat);
}

void convert_module(torch::nn::Module& module, at::ScalarType type) {
  check_type("convert_module", type);
  const at::NoGradGuard no_grad;
  for (auto tensors : {module.parameters(/*recurse=*/false), module.buffers(/*recurse=*/false)}) {
    for (at::Tensor& tensor : tensors) {
      const bool changes =
          tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != type;
      if (changes) change_type(tensor, type);
    }
  }
}

void convert_network(torch::nn::Module& module, at::ScalarType type) {
  check_type("convert_network", type);
  const at::NoGradGuard no_grad;
  mezzo::amp::detail::for_each_to_convert(
      module, {type, /*keep_batch_norms=*/true, /*doubles_too=*/true, /*keeps_float=*/{}},
      [](const std::string&, at::Tensor& tensor, at::ScalarType to) { change_type(tensor, to); });
  mezzo::amp::detail::flatten_recurrent_weights(module);
}

void tofp16::reset() {}

at::Tensor tofp16::forward(const at::Tensor& input) {
  return mezzo::amp::TensorCast{at::kHalf, /*doubles=*/true}(input);
}

namespace detail {

// The policy is made once: it is asked for its low type alone.
HalfScope::HalfScope() {
  static const Policy policy = Policy::defaults(at::kHalf);
  scope_ = std::make_unique<casting::Scope>(policy, casting::Mode::kEmulationOnly);
}

HalfScope::~HalfScope() = default;

void make_half(const std::shared_ptr<torch::nn::Module>& module) {
  if (module == nullptr) raise<ConfigError>("network_to_half", "the network is an empty handle");
  convert_network(*module, at::kHalf);
}

void load_values(torch::serialize::InputArchive& archive, torch::nn::Module& module) {
  mezzo::amp::detail::load_values(archive, module);
}

}  // namespace detail
}  // namespace mezzo::fp16_utils
