#include "device_check/training.h"

#include <cmath>
#include <limits>

#include "core/raise.h"

namespace mezzo::device_check {
namespace {

constexpr double kBound = 0.3;  // of clipped gradients: most steps are

std::unique_ptr<torch::optim::Optimizer> plain_optimizer(std::string_view name,
                                                         const std::vector<at::Tensor>& over) {
  namespace lib = torch::optim;
  if (name == "FusedAdam" || name == "FusedAdam clipped" || name == "torch AdamW")
    return std::make_unique<lib::AdamW>(over, lib::AdamWOptions(3e-3).weight_decay(0.01));
  if (name == "FusedSGD" || name == "LARC")
    return std::make_unique<lib::SGD>(over, lib::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  if (name == "FusedAdagrad")
    return std::make_unique<lib::Adagrad>(over, lib::AdagradOptions(0.02));
  return nullptr;
}

}  // namespace

const std::array<std::string_view, 8> kOptimizers{
    "FusedAdam",    "FusedSGD",          "FusedLAMB", "FusedNovoGrad",
    "FusedAdagrad", "FusedAdam clipped", "LARC",      "torch AdamW"};

double clips_at(std::string_view optimizer) {
  return optimizer == "FusedAdam clipped" ? kBound : 0;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        std::vector<at::Tensor> parameters,
                                                        bool plain) {
  if (plain || name == "LARC" || name == "torch AdamW") {
    if (auto made = plain_optimizer(name, parameters)) return made;
  }
  if (name == "FusedAdam" || name == "FusedAdam clipped")
    return std::make_unique<optim::FusedAdam>(
        parameters, optim::FusedAdamOptions(3e-3).weight_decay(0.01).max_grad_norm(clips_at(name)));
  if (name == "FusedSGD")
    return std::make_unique<optim::FusedSGD>(
        parameters, optim::FusedSGDOptions(0.05).momentum(0.9).weight_decay(1e-4));
  if (name == "FusedLAMB")
    return std::make_unique<optim::FusedLAMB>(parameters, optim::FusedLAMBOptions(0.01));
  if (name == "FusedNovoGrad")
    return std::make_unique<optim::FusedNovoGrad>(parameters, optim::FusedNovoGradOptions(0.01));
  if (name == "FusedAdagrad")
    return std::make_unique<optim::FusedAdagrad>(parameters, optim::FusedAdagradOptions(0.02));
  raise("device_check", "no optimizer ", name);
}

std::string name_of(const Setup& setup) {
  std::string name = setup.level + " " + setup.network + " " + setup.optimizer;
  if (setup.defer_unscale) name += ", unscaled in the step";
  if (setup.split_masters) name += ", masters in halves";
  return name;
}

Training::Training(const Device& device, const Setup& setup)
    : net_(make_network(setup.network)), place_(device.place()) {
  net_->to(place_);
  if (net_->layout() != at::MemoryFormat::Contiguous) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& weight : net_->parameters())
      if (weight.dim() == 4) weight.set_data(weight.contiguous(net_->layout()));
  }
  inner_ = make_optimizer(setup.optimizer, net_->parameters(), false);
  amp::Options options;
  options.opt_level = setup.level;
  options.verbosity = 0;
  options.init_loss_scale = 1024;
  options.defer_unscale = setup.defer_unscale;
  options.split_masters = setup.split_masters;
  if (setup.optimizer == "LARC") {
    larc_ = std::make_unique<optim::LARC>(*inner_);
    std::tie(model, optimizer) = amp::initialize(net_, *larc_, options);
  } else {
    std::tie(model, optimizer) = amp::initialize(net_, *inner_, options);
  }
}

Batch Training::batch(std::uint64_t step) const {
  Batch made = net_->batch(step).to(place_, at::kFloat);
  if (made.input.dim() == 4) made.input = made.input.contiguous(net_->layout());
  return made;
}

at::Tensor Training::forward_and_backward(const Batch& batch, bool overflow) {
  optimizer.zero_grad();
  at::Tensor loss = net_->loss(model(batch.input), batch.target);
  if (overflow) loss = loss * std::numeric_limits<double>::infinity();
  amp::scale_loss(loss, optimizer).backward();
  return loss.detach();
}

at::Tensor Training::step(const Batch& batch, bool overflow) {
  at::Tensor loss = forward_and_backward(batch, overflow);
  optimizer.step();
  return loss;
}

std::vector<at::Tensor> Training::weights() const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& weight : amp::master_params(optimizer))
    all.push_back(weight.detach().to(at::kCPU, at::kDouble).clone());
  return all;
}

Reference::Reference(const Setup& setup)
    : name_(setup.optimizer), net_(make_network(setup.network)) {
  net_->to(at::kDouble);
  inner_ = make_optimizer(name_, net_->parameters(), true);
  if (name_ == "LARC") larc_ = std::make_unique<optim::LARC>(*inner_);
}

double Reference::step(std::uint64_t step) {
  const Batch batch = net_->batch(step);
  inner_->zero_grad();
  const at::Tensor loss = net_->loss(net_->forward(batch.input), batch.target);
  loss.backward();
  if (clips_at(name_) > 0) torch::nn::utils::clip_grad_norm_(net_->parameters(), clips_at(name_));
  if (larc_ != nullptr) {
    larc_->step();
  } else {
    inner_->step();
  }
  return loss.item<double>();
}

std::vector<at::Tensor> Reference::weights() const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& weight : net_->parameters()) all.push_back(weight.detach().clone());
  return all;
}

double relative_distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         const std::vector<at::Tensor>& start) {
  if (a.size() != b.size() || b.size() != start.size())
    return std::numeric_limits<double>::infinity();
  double apart = 0;
  double moved = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]).square().sum().item<double>();
    moved += (b[i] - start[i]).square().sum().item<double>();
  }
  return std::sqrt(apart / moved);
}

}  // namespace mezzo::device_check
