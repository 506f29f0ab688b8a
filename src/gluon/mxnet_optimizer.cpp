#include "gluon/mxnet_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/serialize/archive.h>

#include <algorithm>

#include "bridge/tensors.h"
#include "bridge/workers.h"
#include "core/nearest.h"
#include "mezzo/autocast.h"

namespace mezzo::gluon {
namespace {

constexpr const char* kOptimizerWhere = "gluon::Trainer";

/// The one group's options: a rate that LibTorch's schedulers may set as well.
struct RateOptions final : torch::optim::OptimizerOptions {
  explicit RateOptions(double learning_rate) : lr(learning_rate) {}
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<RateOptions>(*this);
  }
  double get_lr() const override { return lr; }
  void set_lr(double value) override { lr = value; }
  double lr;
};

/// Factors by name as factors by place.
std::vector<double> factors_of(const std::map<std::string, double>& given, const char* option,
                               const std::vector<std::string>& names) {
  std::vector<double> factors(names.size(), 1.0);
  for (const auto& [name, factor] : given) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      const std::vector<std::string_view> known(names.begin(), names.end());
      raise<ConfigError>(kOptimizerWhere, option, ": there is no parameter '", name, "'",
                         did_you_mean(name, known));
    }
    factors[static_cast<std::size_t>(found - names.begin())] = factor;
  }
  return factors;
}

void check_weights(const NamedParameters& parameters) {
  if (parameters.tensors.empty()) raise<ConfigError>(kOptimizerWhere, "there are no parameters");
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor& weight = parameters.tensors[i];
    if (weight.defined() &&
        (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kDouble)) {
      continue;
    }
    raise<ConfigError>(kOptimizerWhere, "parameter '", parameters.names[i], "' is ",
                       weight.defined() ? bridge::describe(weight) : "undefined",
                       "; expected float or double: weights stay in float, gluon::init casts them "
                       "where they are used");
  }
}

c10::IValue read_entry(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) raise(kOptimizerWhere, "the file has no '", key, "'");
  return value;
}

}  // namespace

MxnetOptimizer::MxnetOptimizer(const NamedParameters& parameters, const std::string& optimizer,
                               const OptimizerParams& params, const TrainerOptions& options)
    : Optimizer(parameters.tensors, std::make_unique<RateOptions>(0.0)),
      rule_(rule_named(optimizer)),
      hyper_(hyper_of(rule_, params)),
      schedule_(options.lr_scheduler),
      names_(parameters.names),
      lr_mult_(factors_of(options.lr_mult, "lr_mult", names_)),
      wd_mult_(factors_of(options.wd_mult, "wd_mult", names_)),
      kept_(names_.size()),
      lists_(bridge::torch_workers()) {
  check_weights(parameters);
  if (schedule_ && params.contains("learning_rate")) schedule_->set_base_lr(hyper_.learning_rate);
  const double rate = schedule_ ? (*schedule_)(0) : hyper_.learning_rate;
  param_groups_.front().options().set_lr(rate);
}

at::Tensor MxnetOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode grad(true);
    loss = closure();
  }
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < weights().size(); ++i) {
    if (weights()[i].grad().defined()) chosen.push_back(i);
  }
  update(chosen, hyper_.rescale_grad);
  return loss;
}

void MxnetOptimizer::update(const std::vector<std::size_t>& chosen, double rescale) {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  for (const std::size_t i : chosen) num_update_ = std::max(num_update_, ++kept_[i].count);
  auto& group = param_groups_.front().options();
  if (schedule_ && !chosen.empty()) group.set_lr((*schedule_)(num_update_));
  const double rate = group.get_lr();
  std::vector<std::size_t> by_kernels;
  std::vector<ParameterNumbers> kernel_numbers;
  for (const std::size_t i : chosen) {
    std::vector<at::Tensor>& state = kept_[i].state;
    while (state.size() < rule_.states(hyper_)) {
      state.push_back(at::zeros_like(weights()[i], at::MemoryFormat::Preserve));
    }
    const ParameterNumbers numbers{rate * lr_mult_[i], hyper_.wd * wd_mult_[i], rescale,
                                   kept_[i].count};
    if (fits_kernels(i)) {
      by_kernels.push_back(i);
      kernel_numbers.push_back(numbers);
    } else {
      rule_.by_operators(hyper_, numbers, weights()[i], weights()[i].grad(), state);
    }
  }
  if (!by_kernels.empty()) update_by_kernels(by_kernels, kernel_numbers);
}

bool MxnetOptimizer::fits_kernels(std::size_t parameter) const {
  if (rule_.by_kernels == nullptr || hyper_.clips()) return false;
  const at::Tensor& weight = weights()[parameter];
  const auto fits = [&](const at::Tensor& other) {
    return other.layout() == at::kStrided && other.device().is_cpu() &&
           other.scalar_type() == weight.scalar_type() && bridge::is_dense(other) &&
           bridge::same_layout(other, weight);
  };
  return fits(weight) && fits(weight.grad()) && std::ranges::all_of(kept_[parameter].state, fits);
}

void MxnetOptimizer::update_by_kernels(const std::vector<std::size_t>& chosen,
                                       const std::vector<ParameterNumbers>& numbers) {
  std::vector<kernels::StepRow> rows;
  for (const std::size_t i : chosen) {
    const at::Tensor& weight = weights()[i];
    kernels::StepRow row;
    row.param = weight.mutable_data_ptr();
    row.grad = weight.grad().const_data_ptr();
    for (std::size_t k = 0; k < kept_[i].state.size(); ++k) {
      row.state[k] = kept_[i].state[k].mutable_data_ptr();
    }
    row.count = weight.numel();
    row.param_dtype = row.grad_dtype = *bridge::kernel_dtype(weight.scalar_type());
    row.scalars = static_cast<std::uint32_t>(rows.size());
    rows.push_back(row);
  }
  rule_.by_kernels(hyper_, numbers, lists_, rows);
  for (const std::size_t i : chosen) bridge::bump_version(weights()[i]);
}

double MxnetOptimizer::learning_rate() const {
  return schedule_ ? (*schedule_)(num_update_) : param_groups_.front().options().get_lr();
}

void MxnetOptimizer::set_learning_rate(double learning_rate) {
  if (schedule_) {
    raise<ConfigError>(kOptimizerWhere,
                       "set_learning_rate beside an lr_scheduler, which would overwrite it; "
                       "expected one of both (LRScheduler::set_base_lr changes the schedule)");
  }
  if (!(learning_rate >= 0)) {
    raise<ConfigError>(kOptimizerWhere, "the learning rate is ", learning_rate,
                       "; expected 0 or more");
  }
  param_groups_.front().options().set_lr(learning_rate);
}

void MxnetOptimizer::save(torch::serialize::OutputArchive& archive) const {
  archive.write("optimizer", c10::IValue(std::string(rule_.name)));
  archive.write("num_update", c10::IValue(num_update_));
  archive.write("learning_rate", c10::IValue(param_groups_.front().options().get_lr()));
  archive.write("parameters", c10::IValue(static_cast<std::int64_t>(names_.size())));
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::string place = std::to_string(i);
    archive.write("name" + place, c10::IValue(names_[i]));
    archive.write("count" + place, c10::IValue(kept_[i].count));
    archive.write("states" + place, c10::IValue(static_cast<std::int64_t>(kept_[i].state.size())));
    for (std::size_t k = 0; k < kept_[i].state.size(); ++k) {
      archive.write("state" + place + "_" + std::to_string(k), kept_[i].state[k]);
    }
  }
}

void MxnetOptimizer::load(torch::serialize::InputArchive& archive) {
  const std::string saved = read_entry(archive, "optimizer").toStringRef();
  if (saved != rule_.name) {
    raise(kOptimizerWhere, "the file has the state of '", saved, "', the trainer is '", rule_.name,
          "'");
  }
  const auto count = static_cast<std::size_t>(read_entry(archive, "parameters").toInt());
  if (count != names_.size()) {
    raise(kOptimizerWhere, "the file has ", count, " parameters, the trainer ", names_.size());
  }
  std::vector<Kept> loaded(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string place = std::to_string(i);
    const std::string name = read_entry(archive, "name" + place).toStringRef();
    if (name != names_[i]) {
      raise(kOptimizerWhere, "parameter ", i, " is '", name, "' in the file and '", names_[i],
            "' here");
    }
    loaded[i].count = read_entry(archive, "count" + place).toInt();
    const auto states = static_cast<std::size_t>(read_entry(archive, "states" + place).toInt());
    if (states != 0 && states != rule_.states(hyper_)) {
      raise(kOptimizerWhere, "the file has ", states, " state tensors of '", name, "'; expected ",
            rule_.states(hyper_), ": momentum or centered differ");
    }
    for (std::size_t k = 0; k < states; ++k) {
      at::Tensor tensor;
      archive.read("state" + place + "_" + std::to_string(k), tensor);
      if (tensor.sizes() != weights()[i].sizes()) {
        raise(kOptimizerWhere, "the state of '", name, "' is ", tensor.sizes(),
              " in the file; expected ", weights()[i].sizes());
      }
      at::Tensor own = at::zeros_like(weights()[i], at::MemoryFormat::Preserve);
      loaded[i].state.push_back(own.copy_(tensor));
    }
  }
  const std::int64_t num_update = read_entry(archive, "num_update").toInt();
  const double rate = read_entry(archive, "learning_rate").toDouble();
  kept_ = std::move(loaded);
  num_update_ = num_update;
  param_groups_.front().options().set_lr(rate);
}

}  // namespace mezzo::gluon
