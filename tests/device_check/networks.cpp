#include "device_check/networks.h"

#include "core/raise.h"

namespace mezzo::device_check {
namespace {

at::Tensor drawn(std::uint64_t step, at::IntArrayRef sizes) {
  at::manual_seed(1000 + step);
  return at::randn(sizes, at::kDouble);
}

at::Tensor drawn_kinds(std::uint64_t step, std::int64_t kinds, at::IntArrayRef sizes) {
  at::manual_seed(2000 + step);
  return at::randint(kinds, sizes, at::kLong);
}

at::Tensor entropy(const at::Tensor& output, const at::Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

class Mlp : public CheckedNetwork {
 public:
  Mlp() {
    register_module("layers", layers_);
    // The norm takes away what a bias before it adds: its gradient is noise, whose sign would
    // count.
    layers_->push_back(torch::nn::Linear(torch::nn::LinearOptions(32, 96).bias(false)));
    layers_->push_back(torch::nn::BatchNorm1d(96));
    layers_->push_back(torch::nn::ReLU());
    layers_->push_back(torch::nn::Linear(96, 64));
    layers_->push_back(torch::nn::Tanh());
    layers_->push_back(torch::nn::Linear(64, 8));
  }
  at::Tensor forward(at::Tensor x) override { return layers_->forward(x); }
  Batch batch(std::uint64_t step) const override {
    const at::Tensor x = drawn(step, {48, 32});
    return {x, x.slice(1, 0, 8).sin()};
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const override {
    return torch::mse_loss(output, target.to(output.scalar_type()));
  }

 private:
  torch::nn::Sequential layers_;
};

// Two residual blocks.
class SmallResNet : public CheckedNetwork {
 public:
  SmallResNet() {
    for (std::size_t i = 0; i < 5; ++i) {
      const std::int64_t in = i == 0 ? 3 : 16;
      convolutions_[i] = register_module(
          "conv" + std::to_string(i),
          torch::nn::Conv2d(torch::nn::Conv2dOptions(in, 16, 3).padding(1).bias(false)));
      norms_[i] = register_module("norm" + std::to_string(i), torch::nn::BatchNorm2d(16));
    }
    last_ = register_module("last", torch::nn::Linear(16, 10));
  }
  at::Tensor forward(at::Tensor x) override {
    x = torch::relu(norms_[0](convolutions_[0](x)));
    for (std::size_t i = 1; i < 5; i += 2) {
      const at::Tensor inner = torch::relu(norms_[i](convolutions_[i](x)));
      x = torch::relu(norms_[i + 1](convolutions_[i + 1](inner)) + x);
    }
    return last_(x.mean({2, 3}));
  }
  Batch batch(std::uint64_t step) const override {
    return {drawn(step, {16, 3, 12, 12}), drawn_kinds(step, 10, {16})};
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const override {
    return entropy(output, target);
  }
  at::MemoryFormat layout() const override { return at::MemoryFormat::ChannelsLast; }

 private:
  std::array<torch::nn::Conv2d, 5> convolutions_{nullptr, nullptr, nullptr, nullptr, nullptr};
  std::array<torch::nn::BatchNorm2d, 5> norms_{nullptr, nullptr, nullptr, nullptr, nullptr};
  torch::nn::Linear last_{nullptr};
};

class GptBlock : public torch::nn::Module {
 public:
  GptBlock(std::int64_t width, std::int64_t heads)
      : heads_(heads),
        before_attention_(register_module("before_attention", norm_of(width))),
        attend_(register_module("attend", torch::nn::Linear(width, 3 * width))),
        project_(register_module("project", torch::nn::Linear(width, width))),
        before_mlp_(register_module("before_mlp", norm_of(width))),
        widen_(register_module("widen", torch::nn::Linear(width, 4 * width))),
        narrow_(register_module("narrow", torch::nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = attend_(before_attention_(x))
                           .reshape({x.size(0), x.size(1), 3, heads_, -1})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0,
                                                              /*is_causal=*/true);
    const at::Tensor y = x + project_(mixed.transpose(1, 2).flatten(2));
    return y + narrow_(torch::gelu(widen_(before_mlp_(y))));
  }

 private:
  static torch::nn::LayerNorm norm_of(std::int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }
  std::int64_t heads_;
  torch::nn::LayerNorm before_attention_;
  torch::nn::Linear attend_, project_;
  torch::nn::LayerNorm before_mlp_;
  torch::nn::Linear widen_, narrow_;
};

class Gpt : public CheckedNetwork {
 public:
  explicit Gpt(const GptSizes& sizes)
      : sizes_(sizes),
        embed_(register_module("embed", torch::nn::Embedding(sizes.words, sizes.width))),
        place_(register_module("place", torch::nn::Embedding(sizes.length, sizes.width))),
        norm_(register_module("norm",
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})))) {
    const torch::NoGradGuard no_grad;
    embed_->weight.mul_(0.02);
    place_->weight.mul_(0.02);
    for (std::int64_t i = 0; i < sizes.blocks; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i),
                                        std::make_shared<GptBlock>(sizes.width, sizes.heads)));
  }
  at::Tensor forward(at::Tensor words) override {
    const at::Tensor places = torch::arange(words.size(1), words.options());
    at::Tensor x = embed_(words) + place_(places);
    for (const auto& block : blocks_) x = block->forward(x);
    return torch::linear(norm_(x), embed_->weight).flatten(0, 1);
  }
  Batch batch(std::uint64_t step) const override {
    const at::Tensor words = drawn_kinds(step, sizes_.words, {sizes_.batch, sizes_.length + 1});
    return {words.slice(1, 0, sizes_.length).contiguous(), words.slice(1, 1).flatten()};
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const override {
    return entropy(output, target);
  }

 private:
  GptSizes sizes_;
  torch::nn::Embedding embed_, place_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  torch::nn::LayerNorm norm_;
};

class SmallLstm : public CheckedNetwork {
 public:
  SmallLstm()
      : embed_(register_module("embed", torch::nn::Embedding(kWords, 32))),
        lstm_(register_module(
            "lstm",
            torch::nn::LSTM(torch::nn::LSTMOptions(32, 48).num_layers(2).batch_first(true)))),
        decode_(register_module("decode", torch::nn::Linear(48, kWords))) {}
  at::Tensor forward(at::Tensor words) override {
    return decode_(std::get<0>(lstm_->forward(embed_(words)))).flatten(0, 1);
  }
  Batch batch(std::uint64_t step) const override {
    const at::Tensor words = drawn_kinds(step, kWords, {8, 13});
    return {words.slice(1, 0, 12).contiguous(), words.slice(1, 1).flatten()};
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const override {
    return entropy(output, target);
  }

 private:
  static constexpr std::int64_t kWords = 60;
  torch::nn::Embedding embed_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear decode_;
};

template <typename Net>
std::shared_ptr<CheckedNetwork> made() {
  return std::make_shared<Net>();
}

std::shared_ptr<CheckedNetwork> small_gpt() {
  return make_gpt({.words = 100, .width = 64, .heads = 4, .blocks = 2, .length = 32, .batch = 4});
}

at::Tensor moved(const at::Tensor& tensor, at::Device device, at::ScalarType type) {
  return tensor.is_floating_point() ? tensor.to(device, type) : tensor.to(device);
}

}  // namespace

Batch Batch::to(at::Device device, at::ScalarType type) const {
  return {moved(input, device, type), moved(target, device, type)};
}

const std::array<NetworkRow, 4> kNetworks{{{"mlp", made<Mlp>},
                                           {"resnet", made<SmallResNet>},
                                           {"gpt", small_gpt},
                                           {"lstm", made<SmallLstm>}}};

std::shared_ptr<CheckedNetwork> make_network(std::string_view name) {
  at::manual_seed(17);
  for (const NetworkRow& row : kNetworks)
    if (row.name == name) return row.make();
  raise("device_check", "no network ", name);
}

std::shared_ptr<CheckedNetwork> make_gpt(const GptSizes& sizes) {
  return std::make_shared<Gpt>(sizes);
}

}  // namespace mezzo::device_check
