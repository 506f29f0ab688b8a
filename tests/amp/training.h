// Small networks, data and loops that the tests of this module share.
#pragma once

#include <torch/torch.h>

#include <limits>
#include <string>
#include <vector>

#include "mezzo/amp.h"
#include "mezzo/messages.h"

namespace mezzo::amp {

/// Linear, batch norm, relu, linear: weights of every kind that a level treats differently.
struct TinyNetImpl : torch::nn::Module {
  explicit TinyNetImpl(bool affine = true)
      : first(register_module("first", torch::nn::Linear(4, 8))),
        norm(register_module(
            "norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(8).affine(affine)))),
        second(register_module("second", torch::nn::Linear(8, 2))) {}

  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  at::Tensor features(const at::Tensor& x) { return first(x); }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(TinyNet);

/// One linear layer: its gradients can be predicted.
struct LineImpl : torch::nn::Module {
  LineImpl()
      : line(register_module("line",
                             torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)))) {
    const torch::NoGradGuard no_grad;
    line->weight.copy_(torch::tensor({{1.0F, -0.5F, 0.25F}}));
  }
  at::Tensor forward(const at::Tensor& x) { return line(x); }
  torch::nn::Linear line;
};
TORCH_MODULE(Line);

inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// An input of Line.
inline at::Tensor row(double factor = 1) {
  return torch::tensor({{0.5F, -1.0F, 2.0F}}) * factor;
}

inline const std::vector<std::string> kLevels{"O0", "O1", "O2", "O3", "O4", "O5"};

/// Quiet options of a level. The losses of these tests are sums: at a scale of 65536 their first
/// gradient would overflow half.
inline Options at_level(const std::string& level) {
  return {.opt_level = level, .init_loss_scale = 1024, .verbosity = 0};
}

inline at::Tensor inputs(std::int64_t rows = 8) {
  return torch::linspace(-1, 1, rows * 4).reshape({rows, 4});
}

inline at::Tensor targets(std::int64_t rows = 8) {
  return torch::arange(rows).ge(rows / 2).to(at::kLong);
}

template <typename AnyModel>
at::Tensor loss_of(AnyModel model, const at::Tensor& x = inputs()) {
  return torch::nn::functional::cross_entropy(model(x), targets(x.size(0)));
}

/// Copies of a network's parameters and buffers.
inline std::vector<at::Tensor> values_of(const torch::nn::Module& net) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : net.parameters()) values.push_back(tensor.detach().clone());
  for (const at::Tensor& tensor : net.buffers()) values.push_back(tensor.detach().clone());
  return values;
}

inline bool same_values(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].scalar_type() != b[i].scalar_type() || !torch::equal(a[i], b[i])) return false;
  }
  return true;
}

/// Collects what the library says while it lives.
class Listener {
 public:
  Listener()
      : before_(set_message_sink([this](const std::string& text) { heard += text + "\n"; })) {}
  ~Listener() { set_message_sink(before_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int count(const std::string& part) const {
    int found = 0;
    for (auto at = heard.find(part); at != std::string::npos; at = heard.find(part, at + 1))
      ++found;
    return found;
  }

  std::string heard;

 private:
  MessageSink before_;
};

}  // namespace mezzo::amp
