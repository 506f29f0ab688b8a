#include "ssd512/network.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <cmath>

#include "ssd512/anchors.h"

namespace examples {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

namespace {

constexpr double kMomentum = 0.1;  // MXNet's 0.9: of the new value in place of the old one

at::Tensor through(std::pair<Conv2d, MxBatchNorm>& layer, const at::Tensor& x) {
  return layer.second(layer.first(x));
}

}  // namespace

MxBatchNormImpl::MxBatchNormImpl(std::int64_t channels, double epsilon, bool fix_gamma)
    : epsilon_(epsilon) {
  gamma = register_parameter("gamma", torch::ones(channels), !fix_gamma);
  beta = register_parameter("beta", torch::zeros(channels));
  running_mean = register_buffer("running_mean", torch::zeros(channels));
  running_var = register_buffer("running_var", torch::ones(channels));
}

at::Tensor MxBatchNormImpl::forward(const at::Tensor& x) {
  if (!is_training()) {
    return torch::batch_norm(x, gamma, beta, running_mean, running_var, false, kMomentum, epsilon_,
                             false);
  }
  at::Tensor unbiased = running_var.clone();
  at::Tensor result =
      torch::batch_norm(x, gamma, beta, running_mean, unbiased, true, kMomentum, epsilon_, false);
  const torch::NoGradGuard no_grad;
  running_var.mul_(1 - kMomentum);  // the part of it that stays
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  if (count > 1) running_var.add_(unbiased - running_var, (count - 1) / count);
  return result;
}

ResNetStageImpl::ResNetStageImpl(std::int64_t in, std::int64_t out, std::int64_t blocks,
                                 std::int64_t stride) {
  const std::int64_t middle = out / 4;
  for (std::int64_t i = 0; i < blocks; ++i) {
    Bottleneck block;
    const std::int64_t from = i == 0 ? in : out, step = i == 0 ? stride : 1;
    block.body.push_back(make_layer(Conv2dOptions(from, middle, 1).stride(step)));
    block.body.push_back(make_layer(Conv2dOptions(middle, middle, 3).padding(1).bias(false)));
    block.body.push_back(make_layer(Conv2dOptions(middle, out, 1)));
    if (i == 0)
      block.shortcut.push_back(make_layer(Conv2dOptions(in, out, 1).stride(step).bias(false)));
    blocks_.push_back(std::move(block));
  }
}

std::pair<Conv2d, MxBatchNorm> ResNetStageImpl::make_layer(const Conv2dOptions& options) {
  const std::string number = std::to_string(layers_++);
  return {register_module("conv" + number, Conv2d(options)),
          register_module("batchnorm" + number, MxBatchNorm(options.out_channels(), 1e-5))};
}

at::Tensor ResNetStageImpl::forward(const at::Tensor& x) {
  at::Tensor y = x;
  for (Bottleneck& block : blocks_) {
    const at::Tensor first = torch::relu(through(block.body[0], y));
    const at::Tensor second = torch::relu(through(block.body[1], first));
    const at::Tensor third = through(block.body[2], second);
    const at::Tensor shortcut = block.shortcut.empty() ? y : through(block.shortcut[0], y);
    y = torch::relu(third + shortcut);
  }
  return y;
}

void ResNetStageImpl::zero_last_gammas() {
  const torch::NoGradGuard no_grad;
  for (Bottleneck& block : blocks_) block.body.back().second->gamma.zero_();
}

ResNetFeaturesImpl::ResNetFeaturesImpl()
    : conv0(register_module("conv0",
                            Conv2d(Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)))),
      batchnorm0(register_module("batchnorm0", MxBatchNorm(64, 1e-5))) {
  constexpr std::int64_t kBlocks[] = {3, 4, 6, 3};
  std::int64_t in = 64, out = 256;
  for (std::int64_t i = 0; i < 4; ++i) {
    stages.emplace_back(register_module("stage" + std::to_string(i + 1),
                                        ResNetStage(in, out, kBlocks[i], i == 0 ? 1 : 2)));
    in = out;
    out *= 2;
  }
}

std::pair<at::Tensor, at::Tensor> ResNetFeaturesImpl::forward(const at::Tensor& x) {
  const at::Tensor stem = torch::relu(batchnorm0(conv0(x)));
  at::Tensor y = torch::max_pool2d(stem, 3, 2, 1);
  for (std::size_t i = 0; i < 3; ++i) y = stages[i](y);
  return {y, stages[3](y)};
}

ResNet50Impl::ResNet50Impl()
    : features(register_module("features", ResNetFeatures())),
      output(register_module("output", torch::nn::Linear(2048, 1000))) {}

at::Tensor ResNet50Impl::forward(const at::Tensor& x) {
  return output(features(x).second.mean({2, 3}));
}

SsdImpl::SsdImpl(std::int64_t classes)
    : classes_(classes),
      features_(register_module("features", ResNetFeatures())),
      class_predictors_(register_module("class_predictors", torch::nn::ModuleList())),
      box_predictors_(register_module("box_predictors", torch::nn::ModuleList())) {
  std::vector<std::int64_t> channels{1024, 2048};
  const std::int64_t filters[] = {512, 512, 256, 256};
  for (std::size_t i = 0; i < std::size(filters); ++i) {
    const std::string number = std::to_string(i);
    const auto add = [&](const std::string& name, const Conv2dOptions& options) {
      expansion_.emplace_back(
          register_module("expand_" + name + "conv" + number, Conv2d(options)),
          register_module("expand_" + name + "bn" + number,
                          MxBatchNorm(options.out_channels(), 1e-3, /*fix_gamma=*/true)));
    };
    add("trans_", Conv2dOptions(channels.back(), filters[i], 1).bias(false));
    add("", Conv2dOptions(filters[i], filters[i], 3).stride(2).bias(false));
    channels.push_back(filters[i]);
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::int64_t per_cell = anchors_per_cell(i);
    class_predictors_->push_back(
        Conv2d(Conv2dOptions(channels[i], per_cell * (classes + 1), 3).padding(1)));
    box_predictors_->push_back(Conv2d(Conv2dOptions(channels[i], per_cell * 4, 3).padding(1)));
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> SsdImpl::forward(const at::Tensor& x) {
  auto [sixteenth, thirty_second] = features_(x);
  std::vector<at::Tensor> maps{sixteenth, thirty_second};
  for (std::size_t i = 0; i < expansion_.size(); i += 2) {
    const at::Tensor transition = torch::relu(through(expansion_[i], maps.back()));
    // Padded by hand: on maps as small as these, oneDNN's gradient of a bfloat16 convolution leaves
    // the numbers that only padding would reach as it found them.
    const at::Tensor padded = torch::constant_pad_nd(transition, {1, 1, 1, 1});
    maps.push_back(torch::relu(through(expansion_[i + 1], padded)));
  }
  std::vector<at::Tensor> classes, boxes;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const auto flat = [&](torch::nn::ModuleList& predictors) {
      return predictors[i]->as<Conv2d>()->forward(maps[i]).permute({0, 2, 3, 1}).flatten(1);
    };
    classes.push_back(flat(class_predictors_));
    boxes.push_back(flat(box_predictors_));
  }
  return {torch::cat(classes, 1).reshape({x.size(0), -1, classes_ + 1}),
          torch::cat(boxes, 1).reshape({x.size(0), -1, 4}), anchors_for(maps)};
}

const at::Tensor& SsdImpl::anchors_for(const std::vector<at::Tensor>& maps) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& map : maps) {
    sizes.push_back(map.size(2));
    sizes.push_back(map.size(3));
  }
  if (!anchors_.defined() || sizes != anchored_sizes_ || anchors_.device() != maps[0].device()) {
    anchors_ = make_anchors(sizes).to(maps[0].device());
    anchored_sizes_ = sizes;
  }
  return anchors_;
}

void initialize_weights(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  for (auto& item : net.named_parameters()) {
    at::Tensor& weight = item.value();
    const std::string& name = item.key();
    if (weight.dim() == 1) {
      if (name.ends_with("bias")) weight.zero_();  // norms have theirs already
    } else if (name.find("predictors") != std::string::npos) {
      // Xavier(magnitude = 2): uniform, by the mean of the connections in and out.
      const auto [in, out] = std::pair{weight[0].numel(), weight.numel() / weight.size(1)};
      const double bound = std::sqrt(2.0 / (static_cast<double>(in + out) / 2));
      weight.uniform_(-bound, bound);
    } else {
      torch::nn::init::kaiming_normal_(weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
  for (const auto& module : net.modules()) {
    if (auto* stage = module->as<ResNetStageImpl>()) stage->zero_last_gammas();
  }
}

}  // namespace examples
