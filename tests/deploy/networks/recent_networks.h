// Networks of the last years, and sequences of different lengths.
#pragma once

#include <torch/torch.h>

#include <tuple>
#include <vector>

#include "networks.h"

namespace mezzo::networks {

/// A block of ConvNeXt: depthwise convolution, layer norm over channels last, scaled residual.
struct NextBlockImpl : nn::Module {
  explicit NextBlockImpl(int64_t width) {
    depth = register_module(
        "depth", nn::Conv2d(nn::Conv2dOptions(width, width, 7).padding(3).groups(width)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width}).eps(1e-6)));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
    scale = register_parameter("scale", torch::full({width}, 0.1));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = norm(depth(x).permute({0, 2, 3, 1}));
    return x + (scale * down(F::gelu(up(y)))).permute({0, 3, 1, 2});
  }
  nn::Conv2d depth{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
  Tensor scale;
};
TORCH_MODULE(NextBlock);

struct NextImpl : nn::Module {
  NextImpl() {
    stem = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 8, 4).stride(4)));
    first = register_module("first", NextBlock(8));
    norm = register_module("norm", nn::GroupNorm(1, 8));
    down = register_module("down", nn::Conv2d(nn::Conv2dOptions(8, 16, 2).stride(2)));
    second = register_module("second", NextBlock(16));
    head = register_module("head", nn::Linear(16, 5));
  }
  Tensor forward(const Tensor& x) {
    return head(second(down(norm(first(stem(x))))).mean({-2, -1}));
  }
  nn::Conv2d stem{nullptr}, down{nullptr};
  NextBlock first{nullptr}, second{nullptr};
  nn::GroupNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Next);

/// A block of EfficientNet: expansion, depthwise convolution, squeeze and excitation, projection.
struct EfficientImpl : nn::Module {
  EfficientImpl() {
    stem =
        register_module("stem", nn::Sequential(conv(3, 8, 3, 2), nn::BatchNorm2d(8), nn::SiLU()));
    expand =
        register_module("expand", nn::Sequential(conv(8, 32, 1), nn::BatchNorm2d(32), nn::SiLU()));
    depth = register_module(
        "depth", nn::Sequential(conv(32, 32, 5, 1, 32), nn::BatchNorm2d(32), nn::SiLU()));
    squeeze = register_module("squeeze", nn::Conv2d(32, 2, 1));
    excite = register_module("excite", nn::Conv2d(2, 32, 1));
    project = register_module("project", nn::Sequential(conv(32, 8, 1), nn::BatchNorm2d(8)));
    head = register_module("head", nn::Sequential(nn::Dropout(0.2), nn::Linear(8, 5)));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = stem->forward(x), wide = depth->forward(expand->forward(y));
    const Tensor scale = torch::sigmoid(
        excite(F::silu(squeeze(F::adaptive_avg_pool2d(wide, F::AdaptiveAvgPool2dFuncOptions(1))))));
    const Tensor z = project->forward(wide * scale) + y;
    return head->forward(F::adaptive_avg_pool2d(z, F::AdaptiveAvgPool2dFuncOptions(1)).flatten(1));
  }
  nn::Sequential stem{nullptr}, expand{nullptr}, depth{nullptr}, project{nullptr}, head{nullptr};
  nn::Conv2d squeeze{nullptr}, excite{nullptr};
};
TORCH_MODULE(Efficient);

/// Sentences of different lengths, batch first.
struct SentencesImpl : nn::Module {
  SentencesImpl() {
    lstm = register_module(
        "lstm",
        nn::LSTM(nn::LSTMOptions(4, 5).num_layers(2).bidirectional(true).batch_first(true)));
    gru = register_module("gru", nn::GRU(nn::GRUOptions(4, 3).batch_first(true)));
    rnn = register_module(
        "rnn", nn::RNN(nn::RNNOptions(4, 3).nonlinearity(torch::kReLU).batch_first(true)));
  }
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(const Tensor& x,
                                                             const Tensor& lengths) {
    namespace rnns = nn::utils::rnn;
    const auto packed = rnns::pack_padded_sequence(x, lengths, true, /*enforce_sorted=*/false);
    const auto [words, state] = lstm->forward_with_packed_input(packed);
    const auto [padded, own_lengths] = rnns::pad_packed_sequence(words, true);
    const auto [more, last] = gru->forward_with_packed_input(packed);
    const auto [filled, same] = rnns::pad_packed_sequence(more, true, -7.0);
    return {padded, std::get<0>(state), last, filled,
            std::get<0>(
                rnns::pad_packed_sequence(std::get<0>(rnn->forward_with_packed_input(packed))))};
  }
  nn::LSTM lstm{nullptr};
  nn::GRU gru{nullptr};
  nn::RNN rnn{nullptr};
};
TORCH_MODULE(Sentences);

/// Two layers of attention over the edges of a graph.
struct GraphAttentionImpl : nn::Module {
  GraphAttentionImpl() {
    value = register_module("value", nn::Linear(4, 6));
    score = register_module("score", nn::Linear(12, 1));
    out = register_module("out", nn::Linear(6, 3));
  }
  Tensor forward(const Tensor& x, const Tensor& edges) {
    const Tensor from = edges[0], to = edges[1], h = value(x);
    const Tensor raw = F::leaky_relu(
        score(torch::cat({h.index_select(0, from), h.index_select(0, to)}, 1)).squeeze(1),
        F::LeakyReLUFuncOptions().negative_slope(0.2));
    const Tensor weight = torch::exp(raw - raw.max());
    const Tensor sum = torch::zeros({x.size(0)}).index_add(0, to, weight) + 1e-6;
    const Tensor message =
        h.index_select(0, from) * (weight / sum.index_select(0, to)).unsqueeze(1);
    return out(torch::zeros_like(h).index_add(0, to, message));
  }
  nn::Linear value{nullptr}, score{nullptr}, out{nullptr};
};
TORCH_MODULE(GraphAttention);

}  // namespace mezzo::networks
