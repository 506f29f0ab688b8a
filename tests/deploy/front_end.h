// LibTorch's front end for C++, one functional or module at a time, through all that takes a
// network away: trace, export_onnx and convert_hybrid_block.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "deploy/onnx_call.h"
#include "messages.h"
#include "mezzo/deploy.h"
#include "run_file.h"

namespace mezzo::deploy {

using TensorVector = std::vector<at::Tensor>;

/// A call of a functional or a module.
struct FrontEndCase {
  std::string name;  // as the headers have it
  TensorVector inputs;
  std::function<TensorVector(const TensorVector&)> call;
  std::shared_ptr<torch::nn::Module> module = nullptr;
  int opset = 17;  // the least
  bool is_random = false;
};

struct FrontEndNetworkImpl : torch::nn::Module {
  explicit FrontEndNetworkImpl(const FrontEndCase& one) : call(one.call) {
    if (one.module) register_module("part", one.module);
  }
  TensorVector forward(const TensorVector& inputs) { return call(inputs); }
  std::function<TensorVector(const TensorVector&)> call;
};
TORCH_MODULE(FrontEndNetwork);

/// The names in the headers of a folder, by the first group of a pattern.
inline std::set<std::string> names_in_headers(const char* folder, const std::regex& pattern) {
  std::set<std::string> names;
  const std::filesystem::path root = std::filesystem::path(MEZZO_FRONT_END) / folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch found;
      if (std::regex_search(line, found, pattern)) names.insert(found[1]);
    }
  }
  return names;
}

inline std::set<std::string> names_of_cases(const std::vector<FrontEndCase>& cases) {
  std::set<std::string> names;
  for (const FrontEndCase& one : cases) names.insert(one.name);
  return names;
}

/// The operator that an export could not say, if the table has a reason for it.
inline std::string operator_with_reason(const std::string& message) {
  std::smatch found;
  const std::regex pattern("the operator aten::(\\w+?)(\\.\\w+)? cannot be said");
  if (!std::regex_search(message, found, pattern)) return {};
  return detail::why_not_in_onnx(found[1].str()).empty() ? std::string() : found[1].str();
}

/// Runs a case through all three. Gives the operator that has a reason instead of a row; empty:
/// the file was written.
inline std::string take_away(const FrontEndCase& one) {
  SCOPED_TRACE(one.name);
  FrontEndNetwork net(one);
  net->eval();
  const at::NoGradGuard no_grad;
  const Examples examples{c10::IValue(one.inputs)};
  torch::manual_seed(3);
  const TensorVector wanted = net->forward(one.inputs);
  const auto expect_near = [&](torch::jit::Module module, double tolerance) {
    const c10::IValue got = module.forward({c10::IValue(one.inputs)});
    if (one.is_random) return;
    EXPECT_LT(difference_of(c10::IValue(wanted), got).error, tolerance);
  };
  EXPECT_EQ(message_of([&] { expect_near(trace(net, examples), 1e-6); }), "no error");
  constexpr double kOfHalf = 2e-2;
  EXPECT_EQ(message_of([&] { expect_near(convert_hybrid_block(net, examples), kOfHalf); }),
            "no error");
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("mezzo_front_" + std::to_string(getpid()) + ".onnx");
  OnnxOptions options = judged_options();
  options.opset = one.opset;
  const std::string message = message_of([&] {
    const ExportReport report = export_onnx(net, examples, file, options);
    EXPECT_FALSE(report.verified.empty());
  });
  std::filesystem::remove(file);
  const std::string unsaid = operator_with_reason(message);
  EXPECT_EQ(unsaid.empty() ? message : "no error", "no error");
  return unsaid;
}

}  // namespace mezzo::deploy
