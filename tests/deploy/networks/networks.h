// Small networks of the shapes that programs have, written as programs write them.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <vector>

namespace mezzo::networks {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

inline nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1,
                       int64_t groups = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                        .stride(stride)
                        .padding(kernel / 2)
                        .groups(groups)
                        .bias(false));
}

struct BottleneckImpl : nn::Module {
  BottleneckImpl(int64_t in, int64_t out, int64_t stride) {
    body = register_module(
        "body", nn::Sequential(conv(in, out / 4, 1), nn::BatchNorm2d(out / 4), nn::ReLU(true),
                               conv(out / 4, out / 4, 3, stride), nn::BatchNorm2d(out / 4),
                               nn::ReLU(true), conv(out / 4, out, 1), nn::BatchNorm2d(out)));
    skip = register_module("skip", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  Tensor forward(const Tensor& x) { return torch::relu(body->forward(x) + skip->forward(x)); }
  nn::Sequential body{nullptr}, skip{nullptr};
};
TORCH_MODULE(Bottleneck);

struct ResidualImpl : nn::Module {
  ResidualImpl() {
    stem = register_module(
        "stem", nn::Sequential(conv(3, 8, 7, 2), nn::BatchNorm2d(8), nn::ReLU(),
                               nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1))));
    layers = register_module("layers", nn::Sequential(Bottleneck(8, 16, 1), Bottleneck(16, 32, 2)));
    fc = register_module("fc", nn::Linear(32, 10));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = F::adaptive_avg_pool2d(layers->forward(stem->forward(x)),
                                            F::AdaptiveAvgPool2dFuncOptions(1));
    return fc(y.view({y.size(0), -1}));
  }
  nn::Sequential stem{nullptr}, layers{nullptr};
  nn::Linear fc{nullptr};
};
TORCH_MODULE(Residual);

struct MobileImpl : nn::Module {
  MobileImpl() {
    first = register_module("first", conv(3, 8, 3, 2));
    depth = register_module("depth", conv(8, 8, 5, 1, 8));
    norm = register_module("norm", nn::BatchNorm2d(8));
    squeeze = register_module("squeeze", nn::Conv2d(8, 4, 1));
    excite = register_module("excite", nn::Conv2d(4, 8, 1));
    head = register_module("head", nn::Linear(8, 5));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = torch::hardswish(norm(depth(first(x))));
    const Tensor scale = torch::hardsigmoid(excite(torch::relu(squeeze(y.mean({2, 3}, true)))));
    return head((y * scale).mean({2, 3}));
  }
  nn::Conv2d first{nullptr}, depth{nullptr}, squeeze{nullptr}, excite{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Mobile);

struct UNetImpl : nn::Module {
  UNetImpl() {
    a = register_module("a", conv(3, 4, 3));
    b = register_module("b", conv(4, 8, 3, 2));
    c = register_module("c", conv(12, 4, 3));
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 8, 2).stride(2)));
    out = register_module("out", conv(8, 2, 1));
  }
  Tensor forward(const Tensor& x) {
    const Tensor skip = torch::relu(a(x));
    const Tensor low = torch::relu(b(skip));
    Tensor y = F::interpolate(low, F::InterpolateFuncOptions()
                                       .size(std::vector<int64_t>{skip.size(2), skip.size(3)})
                                       .mode(torch::kBilinear)
                                       .align_corners(false));
    y = torch::relu(c(torch::cat({skip, y}, 1)));
    return out(torch::cat({y, up(low).slice(1, 0, 4)}, 1));
  }
  nn::Conv2d a{nullptr}, b{nullptr}, c{nullptr}, out{nullptr};
  nn::ConvTranspose2d up{nullptr};
};
TORCH_MODULE(UNet);

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t heads, bool causal) : heads_(heads), causal_(causal) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    proj = register_module("proj", nn::Linear(width, width));
    mlp = register_module("mlp", nn::Sequential(nn::Linear(width, 2 * width), nn::GELU(),
                                                nn::Linear(2 * width, width)));
  }
  Tensor forward(const Tensor& x, const Tensor& mask = {}) {
    const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const auto parts = qkv(norm1(x))
                           .reshape({batch, time, 3, heads_, width / heads_})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    Tensor scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) /
                    std::sqrt(static_cast<double>(width / heads_));
    if (mask.defined())
      scores = scores.masked_fill(mask.view({batch, 1, 1, time}).logical_not(), -1e9);
    if (causal_) scores = scores + torch::full({time, time}, -1e9).triu(1);
    const Tensor y =
        torch::matmul(scores.softmax(-1), parts[2]).transpose(1, 2).reshape({batch, time, width});
    const Tensor h = x + proj(y);
    return h + mlp->forward(norm2(h));
  }
  int64_t heads_;
  bool causal_;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, proj{nullptr};
  nn::Sequential mlp{nullptr};
};
TORCH_MODULE(Block);

struct VisionImpl : nn::Module {
  VisionImpl() {
    patch = register_module("patch", nn::Conv2d(nn::Conv2dOptions(3, 16, 4).stride(4)));
    token = register_parameter("token", torch::randn({1, 1, 16}));
    position = register_parameter("position", torch::randn({1, 17, 16}));
    block = register_module("block", Block(16, 4, false));
    head = register_module("head", nn::Linear(16, 5));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = patch(x).flatten(2).transpose(1, 2);
    return head(
        block(torch::cat({token.expand({x.size(0), -1, -1}), y}, 1) + position).select(1, 0));
  }
  nn::Conv2d patch{nullptr};
  Tensor token, position;
  Block block{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Vision);

struct WindowsImpl : nn::Module {
  WindowsImpl() { block = register_module("block", Block(16, 2, false)); }
  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), height = x.size(1), width = x.size(2), w = 4;
    const Tensor shifted = torch::roll(x, {-2, -2}, {1, 2});
    Tensor parts = shifted.view({batch, height / w, w, width / w, w, 16})
                       .permute({0, 1, 3, 2, 4, 5})
                       .reshape({-1, w * w, 16});
    parts = block(parts)
                .view({batch, height / w, width / w, w, w, 16})
                .permute({0, 1, 3, 2, 4, 5})
                .reshape({batch, height, width, 16});
    return torch::roll(parts, {2, 2}, {1, 2});
  }
  Block block{nullptr};
};
TORCH_MODULE(Windows);

struct EncoderImpl : nn::Module {
  EncoderImpl() {
    words = register_module("words", nn::Embedding(30, 16));
    places = register_module("places", nn::Embedding(64, 16));
    block = register_module("block", Block(16, 4, false));
  }
  Tensor forward(const Tensor& ids, const Tensor& mask) {
    const Tensor place = torch::arange(ids.size(1)).unsqueeze(0).expand({ids.size(0), ids.size(1)});
    return block(words(ids) + places(place), mask);
  }
  nn::Embedding words{nullptr}, places{nullptr};
  Block block{nullptr};
};
TORCH_MODULE(Encoder);

struct CausalImpl : nn::Module {
  CausalImpl() {
    words = register_module("words", nn::Embedding(30, 16));
    block = register_module("block", Block(16, 4, true));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& ids) {
    const Tensor h = block(words(ids));
    return {torch::matmul(h, words->weight.t()), h.select(1, -1)};
  }
  nn::Embedding words{nullptr};
  Block block{nullptr};
};
TORCH_MODULE(Causal);

struct RecurringImpl : nn::Module {
  RecurringImpl() {
    lstm = register_module(
        "lstm",
        nn::LSTM(nn::LSTMOptions(4, 6).num_layers(2).batch_first(true).bidirectional(true)));
    gru = register_module("gru", nn::GRU(nn::GRUOptions(12, 5).batch_first(true)));
    rnn = register_module("rnn", nn::RNN(nn::RNNOptions(5, 3).batch_first(true)));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& x) {
    const auto [a, state] = lstm(x);
    const auto [b, last] = gru(a);
    return {std::get<0>(rnn(b)),
            torch::cat({std::get<0>(state).flatten(0, 1), std::get<1>(state).flatten(0, 1)}, 1)};
  }
  nn::LSTM lstm{nullptr};
  nn::GRU gru{nullptr};
  nn::RNN rnn{nullptr};
};
TORCH_MODULE(Recurring);

struct VariationalImpl : nn::Module {
  VariationalImpl() {
    encode = register_module("encode", nn::Linear(12, 8));
    decode = register_module("decode", nn::Linear(4, 12));
  }
  std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& x) {
    const auto parts = torch::tanh(encode(x)).chunk(2, 1);
    const Tensor z = is_training()
                         ? parts[0] + torch::exp(parts[1] * 0.5) * torch::randn_like(parts[0])
                         : parts[0];
    return {torch::sigmoid(decode(z)), parts[0], parts[1]};
  }
  nn::Linear encode{nullptr}, decode{nullptr};
};
TORCH_MODULE(Variational);

struct DiffusionImpl : nn::Module {
  DiffusionImpl() {
    norm = register_module("norm", nn::GroupNorm(2, 4));
    in = register_module("in", conv(4, 8, 3));
    time = register_module("time", nn::Linear(8, 8));
    down = register_module("down", conv(8, 8, 3, 2));
    out = register_module("out", conv(8, 4, 3));
  }
  Tensor forward(const Tensor& x, const Tensor& step) {
    const Tensor rate = torch::exp(torch::arange(4).to(torch::kFloat) * (-std::log(10000.0) / 4));
    const Tensor angle = step.to(torch::kFloat).unsqueeze(1) * rate.unsqueeze(0);
    const Tensor embedding = time(torch::cat({angle.sin(), angle.cos()}, 1));
    Tensor h = in(torch::silu(norm(x))) + embedding.unsqueeze(-1).unsqueeze(-1);
    h = F::interpolate(
        down(h),
        F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));
    return out(h);
  }
  nn::GroupNorm norm{nullptr};
  nn::Conv2d in{nullptr}, down{nullptr}, out{nullptr};
  nn::Linear time{nullptr};
};
TORCH_MODULE(Diffusion);

struct GraphsImpl : nn::Module {
  GraphsImpl() { layer = register_module("layer", nn::Linear(4, 4)); }
  Tensor forward(const Tensor& x, const Tensor& edges) {
    const Tensor messages = layer(x).index_select(0, edges[0]);
    const Tensor sum = torch::zeros_like(x).index_add(0, edges[1], messages);
    const Tensor count = torch::zeros({x.size(0)})
                             .scatter_add(0, edges[1], torch::ones_like(edges[1], torch::kFloat));
    return sum / count.clamp_min(1).unsqueeze(1);
  }
  nn::Linear layer{nullptr};
};
TORCH_MODULE(Graphs);

struct SlicingImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    using torch::indexing::Slice;
    Tensor y = x.clone();
    y.index_put_({Slice(), Slice(1, 3)}, x.index({Slice(), Slice(2, 4)}) * 2);
    y.select(1, 0).add_(1);
    y.index_put_({y < -1}, 0.5);
    return torch::einsum(
        "bij,bkj->bik",
        {y.index({Slice(), Slice(torch::indexing::None, torch::indexing::None, 2)}), y});
  }
};
TORCH_MODULE(Slicing);

}  // namespace mezzo::networks
