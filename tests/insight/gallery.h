// Seeded faults: small networks whose step fails in a known way.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp.h"
#include "mezzo/insight.h"

namespace mezzo::insight {

/// The module of what stands in the middle.
inline const std::string kBetween = "between stem and head";
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Step = std::function<at::Tensor(const at::Tensor&)>;

/// Linear(4, 8), something in between, Linear(8, 2). The stem passes the input's value on to all
/// its outputs, the head sums an eighth of everything.
struct SandwichImpl : torch::nn::Module {
  explicit SandwichImpl(Step between = {}) : middle(std::move(between)) {
    stem = register_module("stem", torch::nn::Linear(4, 8));
    head = register_module("head", torch::nn::Linear(8, 2));
    const torch::NoGradGuard no_grad;
    stem->weight.fill_(0.25);
    head->weight.fill_(0.125);
    stem->bias.zero_();
    head->bias.zero_();
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = stem(before ? before(x) : x);
    return head(middle ? middle(y) : y);
  }
  torch::nn::Linear stem{nullptr}, head{nullptr};
  Step middle, before = {};
};
TORCH_MODULE(Sandwich);

/// A step that fails, and what an explanation must say of it.
struct Fault {
  std::string name = {};
  std::string level = "O1";
  double input = 1;     // the value of all inputs
  Step middle = {};     // between stem and head
  Step before = {};     // of the network, before the stem
  std::string op = {};  // empty: no operator had finite inputs
  std::string module = {};
  Cause cause = Cause::kUnknown;
  bool backward = false;
  bool in_float = false;  // fails in float as well
  double scale = 1024;
  Step loss = [](const at::Tensor& y) { return y.sum(); };
  std::function<void(SandwichImpl&)> spoil = {};  // weights before the step
  std::function<void(at::Tensor&)> spoil_data = {};
  std::string parameter = {};  // which weights are to blame
  /// Registers modules in between and returns the call; in place of `middle`.
  std::function<Step(SandwichImpl&)> build = {};
  /// Micro-batches of the same step that come before, by the value of all their inputs.
  std::vector<double> micro_batches = {};
  double learning_rate = 0.01;
  int good_steps = 0;  // before the one that fails
  /// The change to the program that the first advice asks for.
  std::function<void(Fault&)> mend = {};
};

/// A mend that changes what stands between stem and head.
inline std::function<void(Fault&)> in_between(Step middle) {
  return [middle = std::move(middle)](Fault& fault) { fault.middle = middle; };
}

/// The tables.
std::vector<Fault> overflows();
std::vector<Fault> invalid_arguments();
std::vector<Fault> derivatives();
std::vector<Fault> data_and_weights();
std::vector<Fault> layers();
std::vector<Fault> rounding();
std::vector<Fault> loops();
std::vector<Fault> sums();
std::vector<Fault> poles();
std::vector<Fault> flat_places();
std::vector<Fault> nested();
std::vector<Fault> data_in_the_program();
std::vector<Fault> forward_first();
std::vector<Fault> at_the_edge();
std::vector<Fault> weights_that_are_large();

inline void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

/// A fault under an initialized model: what a training program would hold.
class Scene {
 public:
  Scene(const Fault& fault, const Advice& advice = {})
      : fault_(fault), net_(network_of(fault)), sgd_(net_->parameters(), fault.learning_rate) {
    const torch::NoGradGuard no_grad;
    if (fault.spoil) fault.spoil(*net_);
    x_ = torch::full({3, 4}, fault.input);
    if (fault.spoil_data) fault.spoil_data(x_);
    amp::Options options{.opt_level = fault.level,
                         .loss_scale = advice.loss_scale.value_or(fault.scale),
                         .verbosity = 0,
                         .check_finite = true};
    options.policy = advice.policy;
    options.keep_float = advice.keep_float;
    auto [model, optimizer] = amp::initialize(net_, sgd_, options);
    model_ = model;
    optimizer_ = optimizer;
  }

  at::Tensor loss() const { return fault_.loss(model_(x_)); }

  /// The step that fails, after those that do not.
  amp::StepResult step() {
    for (int i = 0; i < fault_.good_steps; ++i) {
      if (const amp::StepResult result = one_step(); result.skipped()) return result;
    }
    return one_step();
  }

  Explanation explain() {
    return explain_overflow(model_, optimizer_, [this] { return loss(); });
  }

  ShadowRun shadow() {
    return shadow_run(model_, [this] { return loss(); });
  }

 private:
  static Sandwich network_of(const Fault& fault) {
    Sandwich net(fault.middle);
    net->before = fault.before;
    if (fault.build) net->middle = fault.build(*net);
    return net;
  }

  amp::StepResult one_step() {
    optimizer_.zero_grad();
    for (const double value : fault_.micro_batches) {
      const at::Tensor loss = fault_.loss(model_(torch::full({3, 4}, value)));
      amp::scale_loss(loss, optimizer_, {.delay_unscale = true}).backward();
    }
    amp::scale_loss(loss(), optimizer_).backward();
    return optimizer_.step();
  }

  Fault fault_;
  Sandwich net_;
  torch::optim::SGD sgd_;
  at::Tensor x_;
  amp::Model<Sandwich> model_;
  amp::Optimizer optimizer_;
};

}  // namespace mezzo::insight
