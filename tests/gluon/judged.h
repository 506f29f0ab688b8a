// MXNet 1.9.1's own numbers, and the network and data that they belong to.
#pragma once

#include <torch/torch.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "mezzo/error.h"
#include "mezzo/gluon.h"
#include "mezzo/messages.h"

namespace mezzo::gluon {

/// The lines of a reference file by name.
inline std::map<std::string, std::vector<double>> read_reference(const std::string& path) {
  std::map<std::string, std::vector<double>> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::vector<double>& numbers = lines[name];
    for (double number = 0; words >> number;) numbers.push_back(number);
  }
  return lines;
}

/// The judge's numbers under that name.
inline const std::vector<double>& judged(const std::string& name) {
  static const auto* const lines = new std::map<std::string, std::vector<double>>(
      read_reference(MEZZO_GLUON_REFERENCE "/reference_float.txt"));
  return lines->at(name);
}

inline at::Tensor judged_tensor(const std::string& name) {
  std::vector<double> numbers = judged(name);
  const auto count = static_cast<std::int64_t>(numbers.size());
  return torch::empty({count}, at::kDouble)
      .copy_(torch::from_blob(numbers.data(), {count}, at::kDouble));
}

/// make_reference.py's sines.
inline at::Tensor sines(std::int64_t count, double first, double factor) {
  return torch::arange(count, at::kDouble).mul(0.7).add(first).sin().mul(factor).to(at::kFloat);
}

/// The judge's network.
struct JudgedNetImpl : torch::nn::Module {
  JudgedNetImpl()
      : a(register_module("a", torch::nn::Linear(8, 6))),
        b(register_module("b", torch::nn::Linear(6, 3))) {
    const torch::NoGradGuard no_grad;
    double k = 0;
    for (at::Tensor& weight : parameters()) {
      weight.copy_(sines(weight.numel(), k++, 0.5).reshape(weight.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return b(torch::tanh(a(x))); }
  torch::nn::Linear a, b;
};
TORCH_MODULE(JudgedNet);

inline at::Tensor judged_batch(int step) {
  return sines(12 * 8, 0.1 * step, 1.0).reshape({12, 8});
}
inline at::Tensor judged_labels() {
  return torch::arange(12).remainder(3);
}

/// Losses of the samples.
inline at::Tensor judged_losses(JudgedNet& net, int step) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(net(judged_batch(step)), judged_labels(),
                          F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

inline at::Tensor all_weights(const torch::nn::Module& net) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& weight : net.parameters()) flat.push_back(weight.detach().flatten());
  return torch::cat(flat).to(at::kDouble);
}

/// Collects what is sent to the message sink while it lives.
class Messages {
 public:
  Messages()
      : before_(set_message_sink([this](const std::string& text) { all.push_back(text); })) {}
  ~Messages() { set_message_sink(before_); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  std::vector<std::string> all;

 private:
  MessageSink before_;
};

}  // namespace mezzo::gluon
