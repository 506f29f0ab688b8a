// TorchScript modules written as source text.
#pragma once

#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "mezzo/deploy_script.h"

namespace mezzo::deploy {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
using Children = std::vector<std::pair<std::string, torch::jit::Module>>;

/// torch and torchvision, as sources of TorchScript name them here: `torch.relu`, `vision.nms`.
struct WithVision : torch::jit::NativeResolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& function,
      const torch::jit::SourceRange& at) override {
    if (name == "vision") return std::make_shared<torch::jit::BuiltinModule>("torchvision");
    return NativeResolver::resolveValue(name, function, at);
  }
};

/// A module in evaluation mode with these parameters, buffers, submodules and methods.
inline torch::jit::Module scripted(const std::string& source, const Tensors& parameters = {},
                                   const Children& children = {}, const Tensors& buffers = {},
                                   const torch::jit::ResolverPtr& resolver = nullptr) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& [name, tensor] : parameters) module.register_parameter(name, tensor, false);
  for (const auto& [name, tensor] : buffers) module.register_buffer(name, tensor);
  for (const auto& [name, child] : children) module.register_module(name, child);
  module.define(source, resolver);
  return module;
}

inline torch::jit::Module conv_module(int in, int out) {
  return scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.conv2d(x, self.weight, self.bias, [1, 1], [1, 1])\n",
      {{"weight", torch::randn({out, in, 3, 3}) * 0.2}, {"bias", torch::randn({out}) * 0.1}});
}

inline torch::jit::Module linear_module(int in, int out) {
  return scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.linear(x, self.weight, self.bias)\n",
      {{"weight", torch::randn({out, in}) * 0.2}, {"bias", torch::randn({out}) * 0.1}});
}

inline torch::jit::Module norm_module(int channels) {
  return scripted(
      "def forward(self, x: Tensor):\n"
      "  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,\n"
      "                          self.training, 0.1, 1e-5, False)\n",
      {{"weight", torch::rand({channels}) + 0.5}, {"bias", torch::randn({channels}) * 0.1}}, {},
      {{"running_mean", torch::randn({channels}) * 0.1},
       {"running_var", torch::rand({channels}) + 0.5}});
}

/// conv0, bn0, relu, conv1, pooling, fc1, softmax.
inline torch::jit::Module conv_net() {
  return scripted(
      "def forward(self, x: Tensor):\n"
      "  y = torch.relu(self.bn0.forward(self.conv0.forward(x)))\n"
      "  y = torch.relu(self.conv1.forward(y))\n"
      "  y = torch.flatten(torch.adaptive_avg_pool2d(y, [2, 2]), 1)\n"
      "  return torch.softmax(self.fc1.forward(y), 1)\n",
      {},
      {{"conv0", conv_module(3, 8)},
       {"bn0", norm_module(8)},
       {"conv1", conv_module(8, 8)},
       {"fc1", linear_module(32, 5)}});
}

inline at::Tensor parameter(const torch::jit::Module& module, const std::string& name) {
  for (const auto& each : module.named_parameters())
    if (each.name == name) return each.value;
  for (const auto& each : module.named_buffers())
    if (each.name == name) return each.value;
  throw std::runtime_error("no parameter " + name);
}

/// Nodes of a kind in forward(), blocks included.
inline int count_nodes(const torch::jit::Module& module, const std::string& kind) {
  int count = 0;
  const std::function<void(torch::jit::Block*)> visit = [&](torch::jit::Block* block) {
    for (torch::jit::Node* node : block->nodes()) {
      count += node->kind().toQualString() == kind;
      for (torch::jit::Block* inner : node->blocks()) visit(inner);
    }
  };
  visit(module.get_method("forward").graph()->block());
  return count;
}

/// Largest difference, relative to the largest magnitude of what is wanted.
inline double difference(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor right = wanted.to(at::kDouble);
  const double size = right.abs().max().item<double>();
  return (got.to(at::kDouble) - right).abs().max().item<double>() / (size == 0 ? 1 : size);
}

inline double tolerance_of(at::ScalarType low) {
  return low == at::kHalf ? 0.01 : 0.06;
}

}  // namespace mezzo::deploy
