// The way out: time and memory of an export, and a network as a mixed-precision TorchScript module.
#include "mezzo/deploy.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "suites.h"

namespace mezzo::bench {
namespace {

namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A line of /proc/self/status in bytes; 0 on a system without it.
double memory_of_process(const std::string& line) {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    double kilobytes = 0;
    if (key == line + ":" && status >> kilobytes) return kilobytes * 1024;
    status.ignore(4096, '\n');
  }
  return 0;
}

/// Tiles of bfloat16 products; without them there is little to gain.
bool has_amx() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string word; cpus >> word;) {
    if (word == "amx_bf16") return true;
  }
  return false;
}

/// From here on the process's peak counts anew.
void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

/// Sixteen layers of 64 MiB.
torch::nn::Sequential gigabyte() {
  torch::nn::Sequential net;
  for (int i = 0; i < 16; ++i)
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(4096, 4096).bias(false)));
  net->eval();
  return net;
}

constexpr double kGigabyte = 16.0 * 4096 * 4096 * 4;

/// The peer of the time is what it may take, that of the memory the weights, which the network
/// holds in any case.
void export_large(Report& report, const Settings& settings) {
  if (!settings.wants("export of 1 GiB")) return;
  const at::NoGradGuard no_grad;
  const torch::nn::Sequential net = gigabyte();
  const at::Tensor x = torch::randn({2, 4096});
  const fs::path file =
      fs::temp_directory_path() / ("mezzo_bench_" + std::to_string(std::rand()) + ".onnx");
  deploy::OnnxOptions options;
  options.verify = false;
  std::array<double, 2> least{1e9, 1e9};
  double peak = 0;
  for (int turn = 0; turn < 3; ++turn) {
    auto begin = std::chrono::steady_clock::now();
    deploy::trace(net, {x});
    least[1] = std::min(least[1], seconds_since(begin));
    forget_peak();
    begin = std::chrono::steady_clock::now();
    deploy::export_onnx(net, {x}, file, options);
    least[0] = std::min(least[0], seconds_since(begin));
    peak = std::max(peak, memory_of_process("VmHWM"));
    fs::remove(file);
  }
  report.add({.name = "export of 1 GiB, without the trace",
              .ours = std::max(least[0] - least[1], 0.0),
              .peer = 3,
              .peer_name = "the limit",
              .target = 1});
  report.add({.name = "export of 1 GiB, peak of the process",
              .unit = "bytes",
              .ours = peak,
              .peer = 1.2 * kGigabyte,
              .peer_name = "1.2 times the weights",
              .target = 1});
}

struct BottleneckImpl : torch::nn::Module {
  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride) {
    const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t kernel,
                         std::int64_t step) {
      body->push_back(torch::nn::Conv2d(
          torch::nn::Conv2dOptions(from, to, kernel).stride(step).padding(kernel / 2).bias(false)));
      body->push_back(torch::nn::BatchNorm2d(to));
    };
    add(in, width, 1, 1);
    body->push_back(torch::nn::ReLU());
    add(width, width, 3, stride);
    body->push_back(torch::nn::ReLU());
    add(width, 4 * width, 1, 1);
    register_module("body", body);
    if (in == 4 * width) return;
    shortcut->push_back(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(in, 4 * width, 1).stride(stride).bias(false)));
    shortcut->push_back(torch::nn::BatchNorm2d(4 * width));
    register_module("shortcut", shortcut);
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::relu(body->forward(x) + (shortcut->is_empty() ? x : shortcut->forward(x)));
  }
  torch::nn::Sequential body, shortcut;
};
TORCH_MODULE(Bottleneck);

/// ResNet-50 (He et al., 2016), in use.
torch::nn::Sequential residual_network() {
  torch::nn::Sequential net(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)),
      torch::nn::BatchNorm2d(64), torch::nn::ReLU(),
      torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = 64, width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int b = 0; b < blocks; ++b) {
      net->push_back(Bottleneck(in, width, b == 0 && width > 64 ? 2 : 1));
      in = 4 * width;
    }
    width *= 2;
  }
  net->push_back(torch::nn::AdaptiveAvgPool2d(1));
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(2048, 1000));
  net->eval();
  return net;
}

/// LibTorch's own passes for inference are applied to both.
void run_converted(Report& report, const Settings& settings) {
  const std::string name = "ResNet-50 in bfloat16, batch of 4";
  if (!settings.wants(name)) return;
  const at::NoGradGuard no_grad;
  const torch::nn::Sequential net = residual_network();
  const at::Tensor x = torch::randn({4, 3, 224, 224});
  const torch::jit::Module traced = deploy::trace(net, {x});
  torch::jit::Module copy = traced.clone();
  torch::jit::Module whole = torch::jit::optimize_for_inference(copy);
  deploy::ScriptOptions options;
  options.target_dtype = at::kBFloat16;
  options.fold_batch_norm = true;
  options.check_with = deploy::Examples{x};
  torch::jit::Module converted = deploy::convert_hybrid_block(traced, options);
  torch::jit::Module low = torch::jit::optimize_for_inference(converted);
  for (torch::jit::Module* each : {&whole, &low}) {
    for (int warm = 0; warm < 3; ++warm) each->forward({x});
  }
  const Pair pair =
      interleave([&] { low.forward({x}); }, [&] { whole.forward({x}); }, settings.repeats);
  report.add({.name = name,
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = "float TorchScript",
              .spread = pair.spread,
              .target = has_amx() ? std::optional<double>(1.3) : std::nullopt});
}

}  // namespace

void run_deploy(Report& report, const Settings& settings) {
  torch::manual_seed(1);
  export_large(report, settings);
  run_converted(report, settings);
}

}  // namespace mezzo::bench
