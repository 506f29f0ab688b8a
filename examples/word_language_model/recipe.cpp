#include "word_language_model/recipe.h"

#include <mezzo/amp.h>
#include <mezzo/error.h>
#include <mezzo/fp16_utils.h>
#include <mezzo/optim.h>
#include <torch/types.h>

namespace examples {

namespace {

namespace amp = mezzo::amp;
namespace fp16 = mezzo::fp16_utils;

/// The level casts, scales and keeps masters.
class AmpRecipe : public Recipe {
 public:
  AmpRecipe(const RecipeSettings& s, const LanguageModel& net, torch::optim::SGD& sgd)
      : amp_(amp::initialize(
            net, sgd,
            amp::Options::from_flags({{"opt_level", s.opt_level}, {"loss_scale", s.loss_scale}}))) {
  }

  std::pair<at::Tensor, Memory> forward(const at::Tensor& words, const Memory& memory) override {
    return amp_.first(words, memory);
  }
  void zero_grad() override { amp_.second.zero_grad(); }
  void backward(const at::Tensor& loss) override { amp::scale_loss(loss, amp_.second).backward(); }
  void clip(double max_norm) override {
    mezzo::optim::clip_grad_norm_(amp::master_params(amp_.second), max_norm);
  }
  void step() override { amp_.second.step(); }
  double loss_scale() const override { return amp_.second.loss_scale(); }
  std::int64_t skipped_steps() const override { return amp_.second.skipped_steps(); }
  torch::OrderedDict<std::string, at::Tensor> weights() const override {
    return amp::model_state_dict(amp_.first);
  }

 private:
  std::pair<amp::Model<LanguageModel>, amp::Optimizer> amp_;
};

/// Masters under the network's names: there is one for each of its parameters, in order.
torch::OrderedDict<std::string, at::Tensor> named_masters(const LanguageModel& net,
                                                          const std::vector<at::Tensor>& masters) {
  torch::OrderedDict<std::string, at::Tensor> named;
  const auto parameters = net->named_parameters();
  for (std::size_t i = 0; i < masters.size(); ++i)
    named.insert(parameters[i].key(), masters[i].detach().clone());
  return named;
}

/// The loop makes the network half and gives the optimizer to one that scales and has masters.
class Fp16OptimizerRecipe : public Recipe {
 public:
  Fp16OptimizerRecipe(const RecipeSettings& s, LanguageModel net, torch::optim::SGD& sgd)
      : net_(std::move(net)), half_(fp16::network_to_half(net_)), optimizer_(sgd, options_of(s)) {}

  std::pair<at::Tensor, Memory> forward(const at::Tensor& words, const Memory& memory) override {
    auto [logits, after] = half_(words, memory);
    return {logits.to(at::kFloat), after};
  }
  void zero_grad() override { optimizer_.zero_grad(); }
  void backward(const at::Tensor& loss) override { optimizer_.backward(loss); }
  void clip(double max_norm) override { optimizer_.clip_master_grads(max_norm); }
  void step() override {
    skipped_ += optimizer_.overflow() ? 1 : 0;
    optimizer_.step();
  }
  double loss_scale() const override { return optimizer_.loss_scale(); }
  std::int64_t skipped_steps() const override { return skipped_; }
  torch::OrderedDict<std::string, at::Tensor> weights() const override {
    return named_masters(net_,
                         const_cast<fp16::FP16_Optimizer&>(optimizer_).param_groups()[0].params());
  }

 private:
  static fp16::FP16OptimizerOptions options_of(const RecipeSettings& s) {
    const amp::LossScale scale = s.loss_scale == "None" ? "dynamic" : s.loss_scale;
    if (!scale.is_dynamic()) return {.static_loss_scale = scale.value(), .verbose = false};
    return {.dynamic_loss_args = fp16::DynamicLossArgs{65536, 2, 2000}, .verbose = false};
  }

  LanguageModel net_;
  fp16::HalfNetwork<LanguageModel> half_;
  fp16::FP16_Optimizer optimizer_;
  std::int64_t skipped_ = 0;
};

/// The loop keeps the masters and copies gradients and weights itself.
class MastersRecipe : public Recipe {
 public:
  MastersRecipe(const RecipeSettings& s, LanguageModel net, torch::optim::SGD& sgd)
      : net_(std::move(net)), half_(fp16::network_to_half(net_)), sgd_(sgd), scaler_(scale_of(s)) {
    std::tie(parameters_, masters_) = fp16::prep_param_lists(*net_);
    sgd_.param_groups()[0].params() = masters_;
  }
  ~MastersRecipe() override { sgd_.param_groups()[0].params() = parameters_; }

  std::pair<at::Tensor, Memory> forward(const at::Tensor& words, const Memory& memory) override {
    auto [logits, after] = half_(words, memory);
    return {logits.to(at::kFloat), after};
  }
  void zero_grad() override { half_.zero_grad(); }
  void backward(const at::Tensor& loss) override {
    const double scale = scaler_.loss_scale();
    scaler_.backward(loss);
    overflow_ = scaler_.has_overflow(parameters_);
    if (is_dynamic_) scaler_.update_scale(overflow_);
    fp16::model_grads_to_master_grads(parameters_, masters_);
    for (at::Tensor& master : masters_) {
      if (master.grad().defined()) master.mutable_grad().div_(scale);
    }
  }
  void clip(double max_norm) override {
    if (!overflow_) mezzo::optim::clip_grad_norm_(masters_, max_norm);
  }
  void step() override {
    if (overflow_) {
      ++skipped_;
      return;
    }
    sgd_.step();
    fp16::master_params_to_model_params(parameters_, masters_);
  }
  double loss_scale() const override { return scaler_.loss_scale(); }
  std::int64_t skipped_steps() const override { return skipped_; }
  torch::OrderedDict<std::string, at::Tensor> weights() const override {
    return named_masters(net_, masters_);
  }

 private:
  double scale_of(const RecipeSettings& s) {
    constexpr double kFirst = 65536;
    const amp::LossScale scale = s.loss_scale == "None" ? "128" : s.loss_scale;
    is_dynamic_ = scale.is_dynamic();
    return is_dynamic_ ? kFirst : scale.value();
  }

  LanguageModel net_;
  fp16::HalfNetwork<LanguageModel> half_;
  torch::optim::SGD& sgd_;
  bool is_dynamic_ = false;
  fp16::DynamicLossScaler scaler_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> masters_;
  bool overflow_ = false;
  std::int64_t skipped_ = 0;
};

}  // namespace

std::unique_ptr<Recipe> make_recipe(const RecipeSettings& settings, LanguageModel net,
                                    torch::optim::SGD& sgd) {
  if (settings.how == "amp") return std::make_unique<AmpRecipe>(settings, net, sgd);
  if (settings.how == "fp16_optimizer")
    return std::make_unique<Fp16OptimizerRecipe>(settings, std::move(net), sgd);
  if (settings.how == "masters")
    return std::make_unique<MastersRecipe>(settings, std::move(net), sgd);
  throw mezzo::ConfigError("--how: unknown '" + settings.how +
                           "'; expected amp, fp16_optimizer or masters");
}

}  // namespace examples
