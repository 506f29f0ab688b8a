#include <torch/torch.h>

#include "allocations.h"
#include "bandwidth.h"
#include "bridge/multi_tensor.h"
#include "mezzo/amp.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"
#include "steps.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

std::string type_name(at::ScalarType type) {
  return type == at::kFloat ? "float" : type == at::kHalf ? "half" : "bfloat16";
}

std::string case_name(const StepCase& c) {
  return std::string(c.rule == Rule::kAdamW ? "AdamW" : "SGD, momentum") + ", " + c.list.name +
         ", " + type_name(c.grad) + " gradients";
}

class StepSuite {
 public:
  StepSuite(Report& report, const Settings& settings)
      : report_(report), settings_(settings), rate_(update_rate()) {}

  /// Against the strongest composite and against torch::optim.
  void compare(const StepCase& c, double target_composite, double target_classic) {
    if (!settings_.wants(case_name(c))) return;
    {
      const Contestant us = ours(c);
      Contestant peer = composite(c, false);
      // With 16-bit gradients two composites may win; the stronger one is the peer.
      if (c.grad != at::kFloat) {
        const Contestant other = composite(c, true);
        const Pair which = interleave(peer.step, other.step, 3);
        if (which.peer < which.ours) peer = other;
      }
      add(case_name(c), c, step_bytes(c), us, peer, target_composite);
    }
    add(case_name(c), c, step_bytes(c), ours(c), torch_optim(c), target_classic);
  }

  /// The way of a level's defaults against the strongest composite, which works likewise.
  void compare_defaults(const StepCase& c) {
    const std::string name = case_name(c) + ", unscaled where the scope ends";
    if (!settings_.wants(name)) return;
    constexpr double kUnscaled = 4;  // written back before the step reads them again
    add(name, c, step_bytes(c) + kUnscaled, ours_unscaled_before(c), composite(c, false), 1.0);
  }

  /// The same step with float masters.
  void compare_split(StepCase c) {
    const std::string name = case_name(c) + ", split masters";
    if (!settings_.wants(name)) return;
    Contestant whole = ours(c);
    whole.name = "float masters";
    c.splits = true;
    add(name, c, step_bytes(c), ours(c), whole, 1.0);
  }

  void update_alone() {
    const std::string name = "update pass alone, one tensor (30 bytes per parameter)";
    if (!settings_.wants(name)) return;
    const StepCase c{.list = one_flat()};
    const double bytes = 30.0 * static_cast<double>(count_elements(c.list));
    Memory memory(static_cast<std::int64_t>(bytes / 2));
    const Contestant us = our_update(c);
    add_share(
        name, bytes, us.step, [&] { memory.update(); },
        "four streams read, changed and written back");
  }

  void check_alone() {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::string name = "non-finite check alone, ResNet-50, " + type_name(type);
      if (!settings_.wants(name)) continue;
      const StepCase c{.list = resnet50(), .grad = type};
      const std::vector<at::Tensor> grads = make_gradients(c);
      const double bytes =
          (type == at::kFloat ? 4.0 : 2.0) * static_cast<double>(count_elements(c.list));
      const Memory memory(static_cast<std::int64_t>(bytes));
      add_share(
          name, bytes, [&] { bridge::all_finite("bench", grads); }, [&] { memory.read(); },
          "reading as many bytes");
    }
  }

  void allocations() {
    for (const Rule rule : {Rule::kAdamW, Rule::kSgd}) {
      const std::string name =
          std::string("allocations per steady step, ") + (rule == Rule::kAdamW ? "AdamW" : "SGD");
      if (!settings_.wants(name)) continue;
      const StepCase c{.list = resnet50(), .rule = rule};
      const Contestant us = ours(c);
      for (int i = 0; i < 3; ++i) us.step();
      report_.add({.name = name,
                   .unit = "count",
                   .ours = static_cast<double>(count_allocations(us.step)),
                   .peer = 0,
                   .peer_name = "none",
                   .target = 1.0});
    }
  }

 private:
  void add(const std::string& name, const StepCase& c, double bytes_per_parameter,
           const Contestant& us, const Contestant& peer, double target) {
    const Pair pair = interleave(us.step, peer.step, settings_.repeats);
    const double bytes = bytes_per_parameter * static_cast<double>(count_elements(c.list));
    report_.add({.name = name,
                 .ours = pair.ours,
                 .peer = pair.peer,
                 .peer_name = peer.name,
                 .spread = pair.spread,
                 .target = target,
                 .bytes = bytes,
                 .share_of_bandwidth = bytes / pair.ours / rate_});
  }

  void add_share(const std::string& name, double bytes, const std::function<void()>& us,
                 const std::function<void()>& yardstick, const std::string& what) {
    const Pair pair = interleave(us, yardstick, settings_.repeats);
    report_.add({.name = name,
                 .ours = pair.ours,
                 .peer = pair.peer,
                 .peer_name = what,
                 .spread = pair.spread,
                 .target = 0.9,
                 .bytes = bytes,
                 .share_of_bandwidth = pair.peer / pair.ours});
  }

  Report& report_;
  const Settings& settings_;
  double rate_;
};

// Two wide layers without bias: nearly all memory is weights, gradients and state.
torch::nn::Sequential two_layers(std::int64_t width) {
  const auto layer = [&] {
    return torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false));
  };
  return torch::nn::Sequential(layer(), torch::nn::ReLU(), layer());
}

/// Runs iterations of a level with FusedAdam; `look` is called before each step, gradients done,
/// and `rest` where there are none.
template <typename Look>
void train(
    const amp::Options& options, std::int64_t width, int iterations, const Look& look,
    const std::function<void(int, double)>& rest = [](int, double) {}) {
  torch::nn::Sequential net = two_layers(width);
  const double parameters = 2.0 * static_cast<double>(width * width);
  optim::FusedAdam adam(net->parameters(), optim::FusedAdamOptions(1e-4));
  auto [model, optimizer] = amp::initialize(net, adam, options);
  const at::Tensor x = torch::randn({1, width}).mul_(0.01);
  for (int i = 0; i < iterations; ++i) {
    optimizer.zero_grad();
    rest(i, parameters);
    amp::scale_loss(model(x).square().mean(), optimizer).backward();
    look(i, parameters);
    optimizer.step();
  }
}

void low_weight_casts(Report& report) {
  for (const char* level : {"O1", "O4"}) {
    constexpr int kIterations = 12;
    constexpr int kUnmeasured = 2;
    std::int64_t before = 0;
    std::int64_t after = 0;
    train({.opt_level = level, .init_loss_scale = 1024, .verbosity = 0}, 64, kIterations,
          [&](int i, double) {
            after = cast_counts().weight_casts;
            if (i == kUnmeasured) before = after;
          });
    report.add({.name = std::string("weight casts per iteration of 2 weights, FusedAdam, ") + level,
                .unit = "count",
                .ours = static_cast<double>(after - before) / (kIterations - 1 - kUnmeasured),
                .peer = 0,
                .peer_name = "the step writes the copies",
                .target = 1.0});
  }
}

void bytes_per_parameter(Report& report) {
  struct Row {
    const char* name;
    const char* level;
    bool deferred;
    bool splits;
    double expected;
    double at_rest;
  };
  // One bit a weight tells ties apart.
  constexpr double kTies = 0.125;
  constexpr Row kRows[] = {
      {"default", "O4", false, false, 18, 14},
      {"default", "O5", false, false, 18, 14},
      {"defer_unscale", "O4", true, false, 16, 14},
      {"defer_unscale", "O5", true, false, 16, 14},
      {"split_masters", "O5", false, true, 16 + kTies, 12 + kTies},
      {"defer_unscale and split_masters", "O5", true, true, 14 + kTies, 12 + kTies}};
  set_compute_mode(at::kBFloat16, ComputeMode::kNative);
  for (const Row& row : kRows) {
    double most = 0;
    double at_rest = 0;
    {
      const LiveBytes live;
      const auto note = [&live](double& into) {
        return [&](int i, double parameters) {
          if (i == 2) into = static_cast<double>(live.now()) / parameters;
        };
      };
      train({.opt_level = row.level,
             .loss_scale = "dynamic",
             .init_loss_scale = 1024,
             .verbosity = 0,
             .defer_unscale = row.deferred,
             .split_masters = row.splits},
            1024, 3, note(most), note(at_rest));
    }
    report.add(
        {.name = std::string("bytes per parameter, FusedAdam, ") + row.level + ", " + row.name,
         .unit = "bytes",
         .ours = most,
         .peer = row.expected,
         .peer_name = "weights, copies, gradients and state",
         .target = 0.99});
    report.add({.name = std::string("bytes per parameter without gradients, FusedAdam, ") +
                        row.level + ", " + row.name,
                .unit = "bytes",
                .ours = at_rest,
                .peer = row.at_rest,
                .peer_name = "weights, copies and state",
                .target = 0.99});
  }
  set_compute_mode(at::kBFloat16, ComputeMode::kAuto);
}

}  // namespace

void run_step(Report& report, const Settings& settings) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  {
    StepSuite suite(report, settings);
    suite.update_alone();
    suite.check_alone();
    for (const at::ScalarType grad : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const double target = grad == at::kFloat ? 1.25 : 1.5;
      const at::ScalarType copy = grad == at::kHalf ? at::kHalf : at::kBFloat16;
      suite.compare({resnet50(), grad, copy}, target, 5);
    }
    suite.compare_defaults({resnet50()});
    suite.compare({many_small()}, 3, 10);
    suite.compare({.list = resnet50(), .rule = Rule::kSgd}, 1.25, 3);
    for (const Rule rule : {Rule::kAdamW, Rule::kSgd})
      suite.compare_split({.list = resnet50(), .grad = at::kBFloat16, .rule = rule});
    suite.allocations();
    for (const at::ScalarType grad : {at::kFloat, at::kBFloat16}) {
      suite.compare({gpt2(), grad, at::kBFloat16}, grad == at::kFloat ? 1.25 : 1.5, 5);
    }
  }
  if (settings.wants("weight casts per iteration")) low_weight_casts(report);
  if (settings.wants("bytes per parameter")) bytes_per_parameter(report);
}

}  // namespace mezzo::bench
