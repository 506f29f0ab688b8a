#include "imagenet/train/recipe.h"

#include <mezzo/amp.h>
#include <mezzo/ema.h>
#include <mezzo/error.h>
#include <torch/types.h>

#include "imagenet/train/averaging.h"

namespace examples::imagenet {
namespace {

namespace amp = mezzo::amp;

amp::Options options_of(const Precision& p) {
  amp::Options options = amp::Options::from_flags({{"opt_level", p.opt_level},
                                                   {"loss_scale", p.loss_scale},
                                                   {"keep_batchnorm_fp32", p.keep_batchnorm_fp32}});
  options.verbosity = has_several_ranks() && mezzo::parallel::rank() > 0 ? 0 : 1;
  return options;
}

/// The level casts, scales and keeps masters.
class AmpRecipe : public Recipe {
 public:
  AmpRecipe(const Precision& p, const std::shared_ptr<Network>& network, torch::optim::SGD& sgd)
      : amp_(amp::initialize(network, sgd, options_of(p))), averaging_(model(), p.reducer) {
    if (p.ema > 0) ema_.emplace(model(), p.ema);
  }

  at::Tensor forward(const at::Tensor& images) override { return averaging_(images); }
  at::Tensor predict(const at::Tensor& images) override { return model()(images); }
  void backward(const at::Tensor& loss) override {
    amp_.second.zero_grad();
    amp::ScaledLoss scaled = amp::scale_loss(loss, amp_.second);
    scaled.backward();
    averaging_.finish();
    scaled.close();
  }
  void step() override {
    amp_.second.step();
    if (ema_) ema_->update();
  }
  Counters counters() const override { return counters_of(amp_.second); }
  std::int64_t master_bytes() const override {
    return examples::master_bytes(amp_.second, model().parameters());
  }
  std::shared_ptr<void> averages_applied() override {
    return ema_ ? std::make_shared<amp::Ema::Swapped>(*ema_) : nullptr;
  }
  void save(const std::string& file, const Notes& notes) const override {
    amp::CheckpointOptions options = checkpoint_options();
    options.tensors = notes.tensors;
    options.entries = notes.entries;
    amp::save_checkpoint(file, model(), amp_.second, options);
  }
  Notes load(const std::string& file) override {
    return amp::load_checkpoint(file, model(), amp_.second, checkpoint_options());
  }

 private:
  const amp::Model<std::shared_ptr<Network>>& model() const { return amp_.first; }
  amp::CheckpointOptions checkpoint_options() const {
    amp::CheckpointOptions options{.gradients = false};
    if (ema_) options.averages.emplace_back(const_cast<amp::Ema&>(*ema_));
    return options;
  }

  std::pair<amp::Model<std::shared_ptr<Network>>, amp::Optimizer> amp_;
  Averaging averaging_;
  std::optional<amp::Ema> ema_;
};

}  // namespace

std::unique_ptr<Recipe> make_recipe(const Precision& p, const std::shared_ptr<Network>& network,
                                    torch::optim::SGD& sgd) {
  if (p.how == "amp") return std::make_unique<AmpRecipe>(p, network, sgd);
  if (p.how == "fp16_optimizer") return make_fp16_optimizer_recipe(p, network, sgd);
  if (p.how == "masters") return make_masters_recipe(p, network, sgd);
  if (p.how == "handle") return make_handle_recipe(p, network, sgd);
  throw mezzo::ConfigError("--how: unknown '" + p.how +
                           "'; expected amp, fp16_optimizer, masters or handle");
}

}  // namespace examples::imagenet
