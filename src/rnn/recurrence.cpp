// Weights and kept states of recurrent modules.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_cudnn_rnn_flatten_weight.h>
#include <ATen/ops/_use_cudnn_rnn_flatten_weight.h>
#include <ATen/ops/cudnn_is_acceptable.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <ostream>
#include <utility>

#include "rnn/definition.h"

namespace mezzo::rnn {

InitialHidden::InitialHidden(Hidden states) : states_(std::move(states)) {}
InitialHidden::InitialHidden(std::initializer_list<at::Tensor> states) : states_(states) {}
InitialHidden::InitialHidden(const at::Tensor& state) : states_{state} {}
InitialHidden::InitialHidden(const std::tuple<at::Tensor, at::Tensor>& states)
    : states_{std::get<0>(states), std::get<1>(states)} {}

namespace detail {
namespace {

void check_options(const std::string& module, const Options& options) {
  const std::int64_t output = options.output_size.value_or(options.hidden_size);
  if (options.input_size > 0 && options.hidden_size > 0 && output > 0 && options.num_layers > 0 &&
      options.dropout >= 0 && options.dropout <= 1)
    return;
  raise<ConfigError>("rnn::" + module, "input_size is ", options.input_size, ", hidden_size ",
                     options.hidden_size, ", output_size ", output, ", num_layers ",
                     options.num_layers, ", dropout ", options.dropout,
                     "; expected sizes and layers above 0 and a dropout from 0 to 1");
}

}  // namespace

std::vector<at::Tensor> LayerWeights::all() const {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& each : {weight_ih, weight_hh, bias_ih, bias_hh, weight_hr}) {
    if (each.defined()) tensors.push_back(each);
  }
  tensors.insert(tensors.end(), extra_tensors.begin(), extra_tensors.end());
  return tensors;
}

Recurrence::Recurrence(std::shared_ptr<const Definition> definition, Options given)
    : options(given), definition_(std::move(definition)) {
  check_options(definition_->name, options);
}

Recurrence::Recurrence(const Recurrence&) = default;
Recurrence& Recurrence::operator=(const Recurrence&) = default;
Recurrence::~Recurrence() = default;

std::int64_t Recurrence::output_size() const {
  return options.output_size.value_or(options.hidden_size);
}

bool Recurrence::projects() const {
  return output_size() != options.hidden_size;
}

std::int64_t Recurrence::size_of_state(std::int64_t state) const {
  return state == 0 ? output_size() : options.hidden_size;
}

std::int64_t Recurrence::rows_of_states() const {
  const std::int64_t directions = options.bidirectional ? 2 : 1;
  return options.num_layers * directions;
}

void Recurrence::make_weights(torch::nn::Module& module) {
  weights_.clear();
  keeping_ = Keeping::kNothing;
  kept_.clear();
  last_.clear();
  const std::int64_t directions = options.bidirectional ? 2 : 1;
  const std::int64_t gates = definition_->cell.gates * options.hidden_size;
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer) {
    const LayerSizes sizes{.input = layer == 0 ? options.input_size : output_size() * directions,
                           .hidden = options.hidden_size,
                           .output = output_size()};
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const std::string ending = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
      const auto parameter = [&](const std::string& name, at::IntArrayRef shape) {
        return module.register_parameter(name + ending, at::empty(shape));
      };
      LayerWeights& own = weights_.emplace_back();
      own.weight_ih = parameter("weight_ih", {gates, sizes.input});
      own.weight_hh = parameter("weight_hh", {gates, sizes.output});
      if (options.bias) {
        own.bias_ih = parameter("bias_ih", {gates});
        own.bias_hh = parameter("bias_hh", {gates});
      }
      if (projects()) own.weight_hr = parameter("weight_hr", {sizes.output, sizes.hidden});
      if (definition_->cell.extra_weights) own.extra = definition_->cell.extra_weights(sizes);
      for (const ExtraWeight& each : own.extra) {
        if (each.multiplies_input && (each.shape.size() != 2 || each.shape[1] != sizes.input)) {
          raise<ConfigError>("rnn::" + definition_->name, "the extra weight ", each.name,
                             " has the shape ", at::IntArrayRef(each.shape),
                             "; to multiply the input it must be [rows, ", sizes.input, "]");
        }
        own.extra_tensors.push_back(parameter(each.name, each.shape));
      }
    }
  }
  reset_parameters();
}

void Recurrence::reset_parameters() {
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(options.hidden_size));
  for (const LayerWeights& each : weights_) {
    for (const at::Tensor& weight : each.all()) weight.uniform_(-bound, bound);
  }
}

std::vector<at::Tensor> Recurrence::flat_weights() const {
  std::vector<at::Tensor> flat;
  for (const LayerWeights& each : weights_) {
    for (const at::Tensor& weight : each.all()) flat.push_back(weight);
  }
  return flat;
}

void Recurrence::flatten_parameters() {
  if (definition_->cudnn_mode < 0 || (projects() && !definition_->kernel_projects)) return;
  const at::Tensor& first = weights_.front().weight_ih;
  if (!first.is_cuda() || !at::cudnn_is_acceptable(first) || !at::_use_cudnn_rnn_flatten_weight())
    return;
  const at::NoGradGuard no_grad;
  const std::int64_t of_layer = (options.bias ? 4 : 2) + (projects() ? 1 : 0);
  at::_cudnn_rnn_flatten_weight(flat_weights(), of_layer, options.input_size,
                                definition_->cudnn_mode, options.hidden_size,
                                projects() ? output_size() : 0, options.num_layers,
                                options.batch_first, options.bidirectional);
}

Hidden Recurrence::zeros(std::int64_t batch, const at::TensorOptions& type) const {
  Hidden states;
  for (std::int64_t i = 0; i < definition_->cell.states; ++i)
    states.push_back(at::zeros({rows_of_states(), batch, size_of_state(i)}, type));
  return states;
}

void Recurrence::init_hidden(std::int64_t batch) {
  keeping_ = Keeping::kWithGraph;
  const bool has_it = !kept_.empty() && kept_.front().size(1) == batch;
  if (!has_it) kept_ = zeros(batch, weights_.front().weight_ih.options());
}

void Recurrence::reset_hidden() {
  if (keeping_ == Keeping::kNothing) keeping_ = Keeping::kWithGraph;
  kept_.clear();
  last_.clear();
}

void Recurrence::reset_hidden(std::int64_t batch) {
  reset_hidden();
  kept_ = zeros(batch, weights_.front().weight_ih.options());
}

void Recurrence::detach_hidden() {
  if (keeping_ == Keeping::kNothing) {
    if (last_.empty()) {
      raise("rnn::" + definition_->name,
            "detach_hidden() found no state; call forward, init_hidden() or reset_hidden() first");
    }
    keeping_ = Keeping::kWithGraph;
    kept_ = last_;
  }
  for (at::Tensor& each : kept_) each = each.detach();
}

void Recurrence::init_inference(std::int64_t batch) {
  keeping_ = Keeping::kWithoutGraph;
  kept_ = zeros(batch, weights_.front().weight_ih.options());
}

void Recurrence::keep(const Hidden& last) {
  last_.clear();
  for (const at::Tensor& each : last) last_.push_back(each.detach());
  if (keeping_ != Keeping::kNothing) kept_ = keeping_ == Keeping::kWithGraph ? last : last_;
}

void Recurrence::print(std::ostream& stream) const {
  stream << std::boolalpha << "mezzo::rnn::" << definition_->name << '(' << options.input_size
         << ", " << options.hidden_size << ", num_layers=" << options.num_layers
         << ", bias=" << options.bias << ", batch_first=" << options.batch_first
         << ", dropout=" << options.dropout << ", bidirectional=" << options.bidirectional;
  if (projects()) stream << ", output_size=" << output_size();
  stream << ')' << std::noboolalpha;
}

}  // namespace detail
}  // namespace mezzo::rnn
