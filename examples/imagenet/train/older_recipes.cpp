#include <mezzo/error.h>
#include <mezzo/fp16_utils.h>
#include <mezzo/legacy_amp.h>
#include <mezzo/safetensors.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "imagenet/train/averaging.h"
#include "imagenet/train/recipe.h"
#include "imagenet/train/setup.h"

namespace examples::imagenet {
namespace {

namespace amp = mezzo::amp;
namespace fp16 = mezzo::fp16_utils;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

at::Tensor bytes_in(const std::string& text) {
  return torch::from_blob(const_cast<char*>(text.data()), {static_cast<std::int64_t>(text.size())},
                          at::kByte)
      .clone();
}

std::string text_of(const at::Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), bytes.nbytes()};
}

/// A recipe from before amp::save_checkpoint: its files have weights under the names that it gives
/// them, so that --pretrained reads both, and an archive of the optimizer.
class OlderRecipe : public Recipe {
 public:
  OlderRecipe(const std::shared_ptr<Network>& network, torch::optim::SGD& sgd)
      : network_(network), sgd_(sgd) {}

  void save(const std::string& file, const Notes& notes) const override {
    torch::OrderedDict<std::string, at::Tensor> all;
    for (const auto& item : values_of(*network_)) all.insert("model.0." + item.key(), item.value());
    OutputArchive archive;
    save_optimizer(archive);
    std::ostringstream out;
    archive.save_to(out);
    all.insert("optimizer", bytes_in(out.str()));
    for (const auto& [name, tensor] : notes.tensors) all.insert("tensor." + name, tensor);
    for (const auto& [name, entry] : notes.entries) all.insert("entry." + name, bytes_in(entry));
    mezzo::save_safetensors(file, all, {{"format", "imagenet"}});
  }

  Notes load(const std::string& file) override {
    const auto all = mezzo::load_safetensors(file);
    if (!all.contains("optimizer"))
      throw mezzo::Error("'" + file + "' is no checkpoint of an older way to train");
    load_weights(*network_, file);
    std::istringstream in(text_of(all["optimizer"]));
    InputArchive archive;
    archive.load_from(in);
    load_optimizer(archive);
    Notes notes;
    for (const auto& item : all) {
      const std::string& name = item.key();
      if (name.starts_with("tensor.")) notes.tensors[name.substr(7)] = item.value();
      if (name.starts_with("entry.")) notes.entries[name.substr(6)] = text_of(item.value());
    }
    return notes;
  }

 protected:
  virtual void save_optimizer(OutputArchive& archive) const = 0;
  virtual void load_optimizer(InputArchive& archive) = 0;

  std::shared_ptr<Network> network_;
  torch::optim::SGD& sgd_;
  std::int64_t skipped_ = 0;
};

amp::LossScale scale_of(const Precision& p, const char* otherwise) {
  return p.loss_scale == "None" ? otherwise : p.loss_scale;
}

/// Bytes of those that are no parameters of the network.
std::int64_t bytes_beside(const std::vector<at::Tensor>& masters, const Network& network) {
  std::vector<at::Tensor> beside = masters;
  std::erase_if(beside, [&](const at::Tensor& master) {
    return std::ranges::any_of(network.parameters(),
                               [&](const at::Tensor& p) { return p.is_same(master); });
  });
  return examples::bytes_of(beside);
}

/// The loop makes the network half and gives the optimizer to one that scales and has masters.
class Fp16OptimizerRecipe : public OlderRecipe {
 public:
  Fp16OptimizerRecipe(const Precision& p, const std::shared_ptr<Network>& network,
                      torch::optim::SGD& sgd)
      : OlderRecipe(network, sgd),
        half_(fp16::network_to_half(network)),
        averaging_(half_, p.reducer),
        optimizer_(sgd, options_of(p)) {}

  at::Tensor forward(const at::Tensor& x) override { return averaging_(x).to(at::kFloat); }
  at::Tensor predict(const at::Tensor& x) override { return half_(x).to(at::kFloat); }
  void backward(const at::Tensor& loss) override {
    optimizer_.zero_grad();
    optimizer_.backward(loss, /*update_master_grads=*/false);
    averaging_.finish();
    optimizer_.update_master_grads();
  }
  void step() override {
    skipped_ += optimizer_.overflow() ? 1 : 0;
    optimizer_.step();
  }
  Counters counters() const override {
    return {.scale = optimizer_.loss_scale(), .skipped_steps = skipped_};
  }
  std::int64_t master_bytes() const override {
    return bytes_beside(sgd_.param_groups()[0].params(), *network_);
  }

 private:
  static fp16::FP16OptimizerOptions options_of(const Precision& p) {
    const amp::LossScale scale = scale_of(p, "1");
    if (!scale.is_dynamic()) return {.static_loss_scale = scale.value(), .verbose = false};
    return {.dynamic_loss_args = fp16::DynamicLossArgs{65536, 2, 2000}, .verbose = false};
  }
  void save_optimizer(OutputArchive& archive) const override { optimizer_.save(archive); }
  void load_optimizer(InputArchive& archive) override { optimizer_.load(archive); }

  fp16::HalfNetwork<std::shared_ptr<Network>> half_;
  Averaging averaging_;
  fp16::FP16_Optimizer optimizer_;
};

/// The loop keeps the masters and copies gradients and weights itself.
class MastersRecipe : public OlderRecipe {
 public:
  MastersRecipe(const Precision& p, const std::shared_ptr<Network>& network, torch::optim::SGD& sgd)
      : OlderRecipe(network, sgd),
        half_(fp16::network_to_half(network)),
        averaging_(half_, p.reducer),
        scale_(static_scale(p)),
        scaler_(scale_) {
    std::tie(parameters_, masters_) = fp16::prep_param_lists(*network_);
    sgd_.param_groups()[0].params() = masters_;
  }
  ~MastersRecipe() override { sgd_.param_groups()[0].params() = parameters_; }

  at::Tensor forward(const at::Tensor& x) override { return averaging_(x).to(at::kFloat); }
  at::Tensor predict(const at::Tensor& x) override { return half_(x).to(at::kFloat); }
  void backward(const at::Tensor& loss) override {
    half_.zero_grad();
    scaler_.backward(loss);
    averaging_.finish();
    fp16::model_grads_to_master_grads(parameters_, masters_);
    for (at::Tensor& master : masters_) {
      if (master.grad().defined()) master.mutable_grad().div_(scale_);
    }
  }
  void step() override {
    sgd_.step();
    fp16::master_params_to_model_params(parameters_, masters_);
  }
  Counters counters() const override { return {.scale = scale_}; }
  std::int64_t master_bytes() const override { return bytes_beside(masters_, *network_); }

 private:
  static double static_scale(const Precision& p) {
    const amp::LossScale scale = scale_of(p, "1");
    if (scale.is_dynamic()) {
      throw mezzo::ConfigError(
          "--how masters has a static loss scale; --how fp16_optimizer has a dynamic one");
    }
    return scale.value();
  }
  void save_optimizer(OutputArchive& archive) const override {
    for (std::size_t i = 0; i < masters_.size(); ++i)
      archive.write("master" + std::to_string(i), masters_[i].detach(), /*is_buffer=*/true);
    OutputArchive sgd;
    sgd_.save(sgd);
    archive.write("sgd", sgd);
  }
  void load_optimizer(InputArchive& archive) override {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      at::Tensor saved;
      archive.read("master" + std::to_string(i), saved, /*is_buffer=*/true);
      masters_[i].copy_(saved);
    }
    InputArchive sgd;
    archive.read("sgd", sgd);
    sgd_.load(sgd);
  }

  fp16::HalfNetwork<std::shared_ptr<Network>> half_;
  Averaging averaging_;
  double scale_;
  fp16::LossScaler scaler_;
  std::vector<at::Tensor> parameters_, masters_;
};

/// Everything on this thread is cast while the handle lives. Its scale is not saved: the old
/// interface had no way to.
class HandleRecipe : public OlderRecipe {
 public:
  HandleRecipe(const Precision& p, const std::shared_ptr<Network>& network, torch::optim::SGD& sgd)
      : OlderRecipe(network, sgd),
        averaging_(network, p.reducer),
        handle_(amp::legacy::init({.loss_scale = scale_of(p, "dynamic")})) {}

  at::Tensor forward(const at::Tensor& x) override { return averaging_(x).to(at::kFloat); }
  at::Tensor predict(const at::Tensor& x) override { return network_->forward(x).to(at::kFloat); }
  void backward(const at::Tensor& loss) override {
    sgd_.zero_grad();
    amp::ScaledLoss scaled = handle_.scale_loss(loss, sgd_);
    scale_ = (*scaled / loss).detach();
    scaled.backward();
    averaging_.finish();
    scaled.close();
  }
  void step() override {
    // After an overflow the gradients are gone, and nothing moves.
    const auto& params = sgd_.param_groups()[0].params();
    if (std::ranges::none_of(params, [](const at::Tensor& p) { return p.grad().defined(); }))
      ++skipped_;
    sgd_.step();
  }
  Counters counters() const override {
    return {.scale = scale_.defined() ? scale_.item<double>() : 1, .skipped_steps = skipped_};
  }
  std::int64_t master_bytes() const override { return 0; }

 private:
  void save_optimizer(OutputArchive& archive) const override { sgd_.save(archive); }
  void load_optimizer(InputArchive& archive) override { sgd_.load(archive); }

  Averaging averaging_;
  amp::legacy::AmpHandle handle_;
  at::Tensor scale_;
};

}  // namespace

std::unique_ptr<Recipe> make_fp16_optimizer_recipe(const Precision& p,
                                                   const std::shared_ptr<Network>& network,
                                                   torch::optim::SGD& sgd) {
  return std::make_unique<Fp16OptimizerRecipe>(p, network, sgd);
}

std::unique_ptr<Recipe> make_masters_recipe(const Precision& p,
                                            const std::shared_ptr<Network>& network,
                                            torch::optim::SGD& sgd) {
  return std::make_unique<MastersRecipe>(p, network, sgd);
}

std::unique_ptr<Recipe> make_handle_recipe(const Precision& p,
                                           const std::shared_ptr<Network>& network,
                                           torch::optim::SGD& sgd) {
  return std::make_unique<HandleRecipe>(p, network, sgd);
}

}  // namespace examples::imagenet
