#include "train_networks.h"

namespace mezzo::bench {
namespace {

// Convolutions with batch norms, then a linear layer.
class Cnn : public TrainNetwork {
 public:
  Cnn() {
    std::int64_t channels = 3;
    for (const std::int64_t width : {32, 64, 128}) {
      features_->push_back(torch::nn::Conv2d(
          torch::nn::Conv2dOptions(channels, width, 3).stride(2).padding(1).bias(false)));
      features_->push_back(torch::nn::BatchNorm2d(width));
      features_->push_back(torch::nn::ReLU());
      channels = width;
    }
    register_module("features", features_);
    classify_ = register_module("classify", torch::nn::Linear(channels * 16, 10));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return classify_(features_->forward(x).flatten(1));
  }
  at::Tensor input() const override { return x_; }
  at::Tensor loss(const at::Tensor& output) const override {
    return torch::cross_entropy_loss(output, target_);
  }

 private:
  torch::nn::Sequential features_;
  torch::nn::Linear classify_{nullptr};
  at::Tensor x_ = torch::randn({16, 3, 32, 32});
  at::Tensor target_ = torch::randint(10, {16});
};

// One step down and up again, with the skip connection.
class UNet : public TrainNetwork {
 public:
  UNet() {
    first_ = register_module("first", stage(1, 32));
    down_ = register_module(
        "down", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3).stride(2).padding(1)));
    middle_ = register_module("middle", stage(64, 64));
    up_ = register_module(
        "up", torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(64, 32, 2).stride(2)));
    last_ = register_module("last", stage(64, 32));
    classify_ = register_module("classify", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 2, 1)));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor skip = first_->forward(x);
    const at::Tensor deep = middle_->forward(torch::relu(down_->forward(skip)));
    return classify_->forward(last_->forward(torch::cat({up_->forward(deep), skip}, 1)));
  }
  at::Tensor input() const override { return x_; }
  at::Tensor loss(const at::Tensor& output) const override {
    return torch::nn::functional::cross_entropy(output, target_);
  }

 private:
  static torch::nn::Sequential stage(std::int64_t in, std::int64_t out) {
    return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)),
                                 torch::nn::GroupNorm(torch::nn::GroupNormOptions(8, out)),
                                 torch::nn::ReLU());
  }

  torch::nn::Sequential first_{nullptr}, middle_{nullptr}, last_{nullptr};
  torch::nn::Conv2d down_{nullptr}, classify_{nullptr};
  torch::nn::ConvTranspose2d up_{nullptr};
  at::Tensor x_ = torch::randn({4, 1, 48, 48});
  at::Tensor target_ = torch::randint(2, {4, 48, 48});
};

constexpr std::int64_t kWords = 1000;

// Two recurrent layers between an embedding and a vocabulary.
class LstmLanguageModel : public TrainNetwork {
 public:
  LstmLanguageModel()
      : embed_(register_module("embed", torch::nn::Embedding(kWords, 128))),
        lstm_(register_module(
            "lstm",
            torch::nn::LSTM(torch::nn::LSTMOptions(128, 128).num_layers(2).batch_first(true)))),
        decode_(register_module("decode", torch::nn::Linear(128, kWords))) {}
  at::Tensor forward(const at::Tensor& words) override {
    return decode_(std::get<0>(lstm_->forward(embed_(words)))).flatten(0, 1);
  }
  at::Tensor input() const override { return words_.slice(1, 0, 32); }
  at::Tensor loss(const at::Tensor& output) const override {
    return torch::cross_entropy_loss(output, words_.slice(1, 1).flatten());
  }

 private:
  torch::nn::Embedding embed_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear decode_;
  at::Tensor words_ = torch::randint(kWords, {8, 33});
};

class GptBlock : public torch::nn::Module {
 public:
  explicit GptBlock(std::int64_t width)
      : before_attention_(register_module("before_attention", torch::nn::LayerNorm(shape(width)))),
        attend_(register_module("attend", torch::nn::Linear(width, 3 * width))),
        project_(register_module("project", torch::nn::Linear(width, width))),
        before_mlp_(register_module("before_mlp", torch::nn::LayerNorm(shape(width)))),
        widen_(register_module("widen", torch::nn::Linear(width, 4 * width))),
        narrow_(register_module("narrow", torch::nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto heads = attend_(before_attention_(x))
                           .reshape({x.size(0), x.size(1), 3, kHeads, -1})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0,
                                                              /*is_causal=*/true);
    const at::Tensor y = x + project_(mixed.transpose(1, 2).flatten(2));
    return y + narrow_(torch::gelu(widen_(before_mlp_(y))));
  }

 private:
  static constexpr std::int64_t kHeads = 4;
  static torch::nn::LayerNormOptions shape(std::int64_t width) {
    return torch::nn::LayerNormOptions({width});
  }

  torch::nn::LayerNorm before_attention_;
  torch::nn::Linear attend_, project_;
  torch::nn::LayerNorm before_mlp_;
  torch::nn::Linear widen_, narrow_;
};

class Gpt : public TrainNetwork {
 public:
  Gpt()
      : embed_(register_module("embed", torch::nn::Embedding(kWords, kWidth))),
        position_(register_module("position", torch::nn::Embedding(kLength, kWidth))),
        norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        decode_(register_module("decode", torch::nn::Linear(kWidth, kWords))) {
    for (int i = 0; i < 2; ++i)
      blocks_.push_back(
          register_module("block" + std::to_string(i), std::make_shared<GptBlock>(kWidth)));
  }
  at::Tensor forward(const at::Tensor& words) override {
    at::Tensor x = embed_(words) + position_(positions_);
    for (const auto& block : blocks_) x = block->forward(x);
    return decode_(norm_(x)).flatten(0, 1);
  }
  at::Tensor input() const override { return words_.slice(1, 0, kLength); }
  at::Tensor loss(const at::Tensor& output) const override {
    return torch::cross_entropy_loss(output, words_.slice(1, 1).flatten());
  }

 private:
  static constexpr std::int64_t kWidth = 128;
  static constexpr std::int64_t kLength = 64;

  torch::nn::Embedding embed_, position_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear decode_;
  at::Tensor positions_ = torch::arange(kLength);
  at::Tensor words_ = torch::randint(kWords, {4, kLength + 1});
};

// So small that what is added to each operator shows.
class Dqn : public TrainNetwork {
 public:
  Dqn()
      : first_(register_module("first", torch::nn::Linear(8, 128))),
        second_(register_module("second", torch::nn::Linear(128, 128))),
        values_(register_module("values", torch::nn::Linear(128, 4))) {}
  at::Tensor forward(const at::Tensor& state) override {
    return values_(torch::relu(second_(torch::relu(first_(state)))));
  }
  at::Tensor input() const override { return states_; }
  at::Tensor loss(const at::Tensor& output) const override {
    return torch::smooth_l1_loss(output.gather(1, actions_).squeeze(1), returns_);
  }

 private:
  torch::nn::Linear first_, second_, values_;
  at::Tensor states_ = torch::randn({64, 8});
  at::Tensor actions_ = torch::randint(4, {64, 1});
  at::Tensor returns_ = torch::randn({64});
};

// Two rounds of messages along edges, added up at their ends.
class GraphNetwork : public TrainNetwork {
 public:
  GraphNetwork()
      : first_(register_module("first", torch::nn::Linear(64, 64))),
        second_(register_module("second", torch::nn::Linear(64, 7))) {}
  at::Tensor forward(const at::Tensor& nodes) override {
    return gather(second_(torch::relu(gather(first_(nodes)))));
  }
  at::Tensor input() const override { return nodes_; }
  at::Tensor loss(const at::Tensor& output) const override {
    return torch::cross_entropy_loss(output, target_);
  }

 private:
  static constexpr std::int64_t kNodes = 1000;
  at::Tensor gather(const at::Tensor& h) const {
    return torch::zeros_like(h).index_add(0, ends_, h.index_select(0, begins_));
  }

  torch::nn::Linear first_, second_;
  at::Tensor nodes_ = torch::randn({kNodes, 64});
  at::Tensor begins_ = torch::randint(kNodes, {5000});
  at::Tensor ends_ = torch::randint(kNodes, {5000});
  at::Tensor target_ = torch::randint(7, {kNodes});
};

template <typename Net>
std::shared_ptr<TrainNetwork> made() {
  return std::make_shared<Net>();
}

}  // namespace

const std::array<TrainNetworkRow, 6> kTrainNetworks{
    {{"CNN", made<Cnn>},
     {"U-Net", made<UNet>},
     {"LSTM language model", made<LstmLanguageModel>},
     {"GPT", made<Gpt>},
     {"DQN", made<Dqn>},
     {"graph network", made<GraphNetwork>}}};

}  // namespace mezzo::bench
