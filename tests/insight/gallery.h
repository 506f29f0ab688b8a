// Seeded faults: small networks whose step fails in a known way.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp.h"
#include "mezzo/insight.h"

namespace mezzo::insight {

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
    const at::Tensor y = stem(x);
    return head(middle ? middle(y) : y);
  }
  torch::nn::Linear stem{nullptr}, head{nullptr};
  Step middle;
};
TORCH_MODULE(Sandwich);

/// A step that fails, and what an explanation must say of it.
struct Fault {
  std::string name = {};
  std::string level = "O1";
  double input = 1;     // the value of all inputs
  Step middle = {};     // between stem and head
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
};

inline void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

/// A fault under an initialized model: what a training program would hold.
class Scene {
 public:
  Scene(const Fault& fault, const Advice& advice = {})
      : fault_(fault), net_(fault.middle), sgd_(net_->parameters(), 0.01) {
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

  amp::StepResult step() {
    optimizer_.zero_grad();
    amp::scale_loss(loss(), optimizer_).backward();
    return optimizer_.step();
  }

  Explanation explain() {
    return explain_overflow(model_, optimizer_, [this] { return loss(); });
  }

  ShadowRun shadow() {
    return shadow_run(model_, [this] { return loss(); });
  }

 private:
  Fault fault_;
  Sandwich net_;
  torch::optim::SGD sgd_;
  at::Tensor x_;
  amp::Model<Sandwich> model_;
  amp::Optimizer optimizer_;
};

}  // namespace mezzo::insight
