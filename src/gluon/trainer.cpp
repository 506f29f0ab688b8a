#include <utility>

#include "core/raise.h"
#include "gluon/trainer_state.h"
#include "mezzo/gluon.h"

namespace mezzo::gluon {
namespace {

NamedParameters named(const torch::OrderedDict<std::string, at::Tensor>& given) {
  NamedParameters parameters;
  for (const auto& item : given) {
    parameters.names.push_back(item.key());
    parameters.tensors.push_back(item.value());
  }
  return parameters;
}

std::vector<NamedParameters> named_replicas(
    const std::vector<torch::OrderedDict<std::string, at::Tensor>>& given) {
  std::vector<NamedParameters> replicas;
  for (const auto& replica : given) replicas.push_back(named(replica));
  return replicas;
}

}  // namespace

Trainer::Trainer(const torch::nn::Module& module, const std::string& optimizer,
                 const OptimizerParams& optimizer_params, TrainerOptions options)
    : Trainer(module.named_parameters(), optimizer, optimizer_params, std::move(options)) {}

Trainer::Trainer(torch::OrderedDict<std::string, at::Tensor> params, const std::string& optimizer,
                 const OptimizerParams& optimizer_params, TrainerOptions options)
    : state_(std::make_unique<detail::TrainerState>(std::vector<NamedParameters>{named(params)},
                                                    optimizer, optimizer_params,
                                                    std::move(options))) {}

Trainer::Trainer(std::vector<torch::OrderedDict<std::string, at::Tensor>> replicas,
                 const std::string& optimizer, const OptimizerParams& optimizer_params,
                 TrainerOptions options)
    : state_(std::make_unique<detail::TrainerState>(named_replicas(replicas), optimizer,
                                                    optimizer_params, std::move(options))) {}

Trainer::Trainer(torch::optim::Optimizer& optimizer, TrainerOptions options)
    : state_(std::make_unique<detail::TrainerState>(optimizer, std::move(options))) {}

Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

void Trainer::step(double batch_size, bool ignore_stale_grad) {
  state_->step(batch_size, ignore_stale_grad);
}

void Trainer::allreduce_grads() {
  state_->allreduce();
}

void Trainer::update(double batch_size, bool ignore_stale_grad) {
  state_->update(batch_size, ignore_stale_grad);
}

void Trainer::zero_grad() {
  state_->zero_grad();
}

double Trainer::learning_rate() const {
  return state_->learning_rate();
}

void Trainer::set_learning_rate(double learning_rate) {
  state_->set_learning_rate(learning_rate);
}

torch::optim::Optimizer& Trainer::optimizer() {
  return state_->optimizer();
}

double Trainer::loss_scale() const {
  return state_->scaler ? state_->scaler->scale() : 1.0;
}

bool Trainer::last_step_skipped() const {
  return state_->last_step_skipped;
}

void Trainer::save_states(const std::string& path) const {
  state_->save(path);
}

void Trainer::load_states(const std::string& path) {
  state_->load(path);
}

}  // namespace mezzo::gluon
