// Trains a small convolutional network on Fashion-MNIST in float and in mixed precision.
//
//   fashion_mnist                       every default level in turn, each in its own process: a
//                                       table, report.json and report.html
//   fashion_mnist --opt-level O1        one level, here
//   fashion_mnist --compare all         O3 too, as a baseline of speed
//   fashion_mnist --nproc 2             two processes share every batch
//
// The network and the loop below are an ordinary LibTorch program. The support folder reads the
// images, parses options, watches the loop and runs the levels one after another.
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <iostream>
#include <optional>

#include "support/command_line.h"
#include "support/compare.h"
#include "support/images.h"
#include "support/optimizers.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/recorder.h"

namespace amp = mezzo::amp;

namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

// The first two convolutions halve the image, so that later ones are cheap.
struct NetImpl : torch::nn::Module {
  Conv2d conv1{Conv2dOptions(1, 32, 5).stride(2).padding(2).bias(false)};
  Conv2d conv2{Conv2dOptions(32, 64, 3).stride(2).padding(1).bias(false)};
  Conv2d conv3{Conv2dOptions(64, 128, 3).padding(1).bias(false)};
  BatchNorm2d norm1{32}, norm2{64}, norm3{128};
  torch::nn::Linear classify{128 * 7 * 7, 10};

  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("norm3", norm3);
    register_module("classify", classify);
  }

  at::Tensor forward(at::Tensor x) {
    x = torch::relu(norm1(conv1(x)));  // [N, 32, 14, 14]
    x = torch::relu(norm2(conv2(x)));  // [N, 64, 7, 7]
    x = torch::relu(norm3(conv3(x)));  // [N, 128, 7, 7]
    return classify(x.flatten(1));
  }
};
TORCH_MODULE(Net);

struct Settings {
  std::string opt_level, optimizer = "sgd", loss_scale = "None", keep_batchnorm_fp32 = "None";
  std::string compare = "O0,O1,O2,O4", report = "report.json", log;
  std::string data = "/usr/share/datasets/fashion-mnist", device = "cpu";
  int epochs = 3, batch_size = 128, steps = 0, seed = 1, nproc = 1, watch = 100;
};

// Rises over the first quarter of the training and then falls to zero.
double learning_rate(double peak, double progress) {
  constexpr double kRise = 0.25;
  return peak * std::min(progress / kRise, (1 - progress) / (1 - kRise));
}

template <class Model>
double accuracy(Model model, const examples::Images& images) {
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t kBatch = 500;
  std::int64_t correct = 0;
  for (const at::Tensor& indices :
       torch::arange(images.size(), images.labels.device()).split(kBatch)) {
    const auto [pixels, labels] = images.batch(indices);
    correct += model(pixels).argmax(1).eq(labels).sum().template item<std::int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(images.size());
}

template <class Model>
std::optional<mezzo::insight::Watch> watch_of(Model& model, amp::Optimizer& optimizer,
                                              mezzo::report::Sink& sink, int every) {
  if (every == 0) return std::nullopt;
  return mezzo::insight::watch(model, optimizer, sink, {.every = every});
}

void train(const Settings& settings) {
  const at::Device device = examples::device_of(settings.device);
  const auto training = examples::load_images(settings.data, "train", device);
  const auto test = examples::load_images(settings.data, "t10k", device);
  const std::int64_t most = settings.steps > 0 ? settings.steps : training.size();
  const std::int64_t steps_per_epoch = std::min(training.size() / settings.batch_size, most);
  const auto total = static_cast<double>(settings.epochs * steps_per_epoch);
  const examples::MemoryPeak memory;
  const examples::Ranks ranks;

  torch::manual_seed(static_cast<std::uint64_t>(settings.seed));
  Net net;
  net->to(device);
  const auto chosen = examples::make_optimizer(settings.optimizer, net->parameters());

  auto [model, optimizer] = amp::initialize(
      net, *chosen.optimizer,
      amp::Options::from_flags({{"opt_level", settings.opt_level},
                                {"loss_scale", settings.loss_scale},
                                {"keep_batchnorm_fp32", settings.keep_batchnorm_fp32}}));

  std::function<at::Tensor(const at::Tensor&)> forward = model;
  if (ranks.size() > 1) forward = mezzo::parallel::DistributedDataParallel(model);

  examples::Recorder recorder(
      settings.log,
      {.run = settings.opt_level,
       .epochs = settings.epochs,
       .steps_per_epoch = steps_per_epoch,
       .batch_size = settings.batch_size,
       .items = "images",
       .machine = examples::machine_of(device)},
      [&optimizer = optimizer] { return examples::counters_of(optimizer); });
  auto watch = watch_of(model, optimizer, recorder.sink(), settings.watch);
  std::int64_t step = 0;
  for (int epoch = 1; epoch <= settings.epochs; ++epoch) {
    model->train();
    recorder.begin_epoch();
    const auto batches = torch::randperm(training.size(), device).split(settings.batch_size);
    for (std::int64_t i = 0; i < steps_per_epoch; ++i) {
      const auto [images, labels] = training.batch(ranks.share(batches[i]));
      const double rate = learning_rate(chosen.peak_rate, static_cast<double>(++step) / total);
      for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);

      optimizer.zero_grad();
      const at::Tensor outputs = forward(images);
      const at::Tensor loss = torch::nn::functional::cross_entropy(outputs, labels);
      amp::scale_loss(loss, optimizer).backward();
      optimizer.step();
      if (watch) watch->step();
      recorder.step(loss, outputs, labels);
    }
    model->eval();
    recorder.end_epoch(accuracy(model, test));
  }
  ranks.expect_equal(amp::master_params(optimizer));
  recorder.end({.peak_memory_bytes = memory.bytes(),
                .parameter_bytes = examples::bytes_of(model->parameters()),
                .master_bytes = examples::master_bytes(optimizer, model->parameters()),
                .optimizer_state_bytes = examples::state_bytes(*chosen.optimizer)});
}

int run(int argc, char** argv) {
  const std::vector<std::string> all{"O0", "O1", "O2", "O4", "O3", "O3+bn"};
  const std::vector<std::string> known{"O0", "O1", "O2", "O3", "O3+bn", "O4", "O5"};
  Settings settings;
  examples::CommandLine line("fashion_mnist",
                             "Trains a network on Fashion-MNIST, in float and mixed precision.");
  line.option("opt-level", settings.opt_level, "train this level alone")
      .option("optimizer", settings.optimizer, examples::optimizer_names())
      .option("compare", settings.compare, "levels to put side by side, or all")
      .option("loss-scale", settings.loss_scale, "dynamic, or a number; None: the level's")
      .option("keep-batchnorm-fp32", settings.keep_batchnorm_fp32,
              "True or False; None: the level's")
      .option("epochs", settings.epochs, "times through the images")
      .option("batch-size", settings.batch_size, "images per step")
      .option("device", settings.device, "where to train: cpu, cuda, cuda:1")
      .option("data", settings.data, "folder of the images")
      .option("report", settings.report, "figures as JSON; the page with plots goes beside it")
      .option("log", settings.log, "every event of one level, as JSON lines")
      .option("seed", settings.seed, "of weights and of the order of the images")
      .option("watch", settings.watch, "look at the numerics at every so many steps; 0: never")
      .option("nproc", settings.nproc, "processes that share every batch")
      .option("steps", settings.steps, "end each epoch after so many steps; 0: after all images");
  if (!line.parse(argc, argv)) return 0;
  examples::require_optimizer(settings.optimizer);
  line.require("epochs", settings.epochs, 1, 10000);
  line.require("batch-size", settings.batch_size, 2, 60000);
  line.require("steps", settings.steps, 0, 60000);
  line.require("watch", settings.watch, 0, 1000000);
  line.require("nproc", settings.nproc, 1, 64);

  const bool one_level = line.given("opt-level");
  if (one_level && line.given("compare"))
    throw mezzo::ConfigError("--opt-level and --compare exclude each other");
  const auto chosen =
      examples::parse_levels(one_level ? settings.opt_level : settings.compare, all, known);
  if (one_level && !line.given("report"))
    return examples::run_in_ranks(settings.nproc, argc, argv, [&] { train(settings); });
  if (line.given("log")) throw mezzo::ConfigError("--log needs --opt-level, and no --report");
  examples::require_report_writable(settings.report);
  const auto report =
      examples::compare_levels(chosen, line.given_except({"opt-level", "compare", "report"}));
  std::cout << mezzo::report::to_table(report);
  examples::save_report(report, settings.report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("fashion_mnist", run, argc, argv);
}
