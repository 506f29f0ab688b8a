#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <torch/nn/init.h>

#include <cmath>

#include "bridge/tensors.h"
#include "core/torch.h"
#include "mezzo/nn.h"

namespace mezzo::nn {
namespace {

void check_features(const char* where, std::initializer_list<std::int64_t> features) {
  for (const std::int64_t count : features) {
    if (count <= 0) raise<ConfigError>(where, "a layer of ", count, " features; expected above 0");
  }
}

void check_input(const char* where, const at::Tensor& x, std::int64_t features) {
  if (!x.defined() || x.dim() == 0 || x.size(-1) != features) {
    raise<ConfigError>(where, "the input is ", bridge::describe(x), "; expected a last size of ",
                       features);
  }
}

void start_as_linear(at::Tensor& weight, at::Tensor& bias) {
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
  torch::nn::init::uniform_(bias, -bound, bound);
}

using Activation = at::Tensor (*)(const at::Tensor&);
struct NamedActivation {
  std::string_view name;
  Activation apply;
};
constexpr NamedActivation kActivations[] = {
    {"none", [](const at::Tensor& x) { return x; }},
    {"relu", [](const at::Tensor& x) { return at::relu(x); }},
    {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }}};

Activation activation_named(const std::string& name) {
  for (const NamedActivation& activation : kActivations) {
    if (activation.name == name) return activation.apply;
  }
  raise<ConfigError>("MLP", "activation is '", name, "'; expected none, relu or sigmoid");
}

}  // namespace

MLPImpl::MLPImpl(MLPOptions given) : options(std::move(given)) {
  MLPImpl::reset();
}

void MLPImpl::reset() {
  activation_named(options.activation);
  if (options.sizes.size() < 2) {
    raise<ConfigError>("MLP", "sizes has ", options.sizes.size(), " numbers; expected two or more");
  }
  for (const std::int64_t size : options.sizes) check_features("MLP", {size});
  weights.clear();
  biases.clear();
  for (std::size_t i = 0; i + 1 < options.sizes.size(); ++i) {
    const std::int64_t in = options.sizes[i];
    const std::int64_t out = options.sizes[i + 1];
    const std::string number = std::to_string(i);
    weights.push_back(register_parameter("weight_" + number, at::empty({out, in})));
    biases.push_back(options.bias ? register_parameter("bias_" + number, at::empty({out}))
                                  : at::Tensor());
  }
  reset_parameters();
}

void MLPImpl::reset_parameters() {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto in = static_cast<double>(options.sizes[i]);
    const auto out = static_cast<double>(options.sizes[i + 1]);
    torch::nn::init::normal_(weights[i], 0.0, std::sqrt(2 / (in + out)));
    if (biases[i].defined()) torch::nn::init::normal_(biases[i], 0.0, std::sqrt(1 / out));
  }
}

void MLPImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::MLP(" << at::IntArrayRef(options.sizes)
         << ", bias=" << (options.bias ? "true" : "false") << ", activation=" << options.activation
         << ')';
}

at::Tensor MLPImpl::forward(const at::Tensor& x) {
  check_input("MLP", x, options.sizes.front());
  const Activation activation = activation_named(options.activation);
  at::Tensor y = x;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    y = activation(at::linear(y, weights[i], biases[i]));
  }
  return y;
}

FusedDenseImpl::FusedDenseImpl(std::int64_t in_features, std::int64_t out_features, bool with_bias)
    : in_(in_features), out_(out_features), with_bias_(with_bias) {
  FusedDenseImpl::reset();
}

void FusedDenseImpl::reset() {
  check_features("FusedDense", {in_, out_});
  weight = register_parameter("weight", at::empty({out_, in_}));
  if (with_bias_) bias = register_parameter("bias", at::empty({out_}));
  reset_parameters();
}

void FusedDenseImpl::reset_parameters() {
  start_as_linear(weight, bias);
}

void FusedDenseImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::FusedDense(" << in_ << ", " << out_
         << ", bias=" << (with_bias_ ? "true" : "false") << ')';
}

at::Tensor FusedDenseImpl::forward(const at::Tensor& x) {
  check_input("FusedDense", x, in_);
  return at::linear(x, weight, bias);
}

FusedDenseGeluDenseImpl::FusedDenseGeluDenseImpl(std::int64_t in_features,
                                                 std::int64_t intermediate_features,
                                                 std::int64_t out_features)
    : in_(in_features), intermediate_(intermediate_features), out_(out_features) {
  FusedDenseGeluDenseImpl::reset();
}

void FusedDenseGeluDenseImpl::reset() {
  check_features("FusedDenseGeluDense", {in_, intermediate_, out_});
  weight1 = register_parameter("weight1", at::empty({intermediate_, in_}));
  bias1 = register_parameter("bias1", at::empty({intermediate_}));
  weight2 = register_parameter("weight2", at::empty({out_, intermediate_}));
  bias2 = register_parameter("bias2", at::empty({out_}));
  reset_parameters();
}

void FusedDenseGeluDenseImpl::reset_parameters() {
  start_as_linear(weight1, bias1);
  start_as_linear(weight2, bias2);
}

void FusedDenseGeluDenseImpl::pretty_print(std::ostream& stream) const {
  stream << "mezzo::nn::FusedDenseGeluDense(" << in_ << ", " << intermediate_ << ", " << out_
         << ')';
}

at::Tensor FusedDenseGeluDenseImpl::forward(const at::Tensor& x) {
  check_input("FusedDenseGeluDense", x, in_);
  return at::linear(at::gelu(at::linear(x, weight1, bias1)), weight2, bias2);
}

}  // namespace mezzo::nn
