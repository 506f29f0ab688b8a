// Every functional of LibTorch's headers leaves as a trace, as a module in 16 bits, and as an ONNX
// file or with a reason why not.
#include "front_end.h"

namespace mezzo::deploy {
namespace {

namespace F = torch::nn::functional;
using In = const TensorVector&;

at::Tensor images() {
  return torch::randn({2, 4, 6, 8});
}
at::Tensor signals() {
  return torch::randn({2, 4, 9});
}
at::Tensor volumes() {
  return torch::randn({1, 2, 4, 6, 5});
}
at::Tensor chances(at::IntArrayRef sizes) {
  return torch::rand(sizes) * 0.8 + 0.1;
}
at::Tensor signs(at::IntArrayRef sizes) {
  return torch::where(torch::rand(sizes) > 0.5, 1.0, -1.0).to(torch::kFloat);
}
TensorVector both(const std::tuple<at::Tensor, at::Tensor>& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

std::vector<FrontEndCase> activation_calls() {
  const TensorVector x = {torch::randn({3, 4}) * 2};
  return {
      {"elu", x, [](In in) -> TensorVector { return {F::elu(in[0])}; }},
      {"elu", x,
       [](In in) -> TensorVector {
         return {F::elu(in[0].clone(), F::ELUFuncOptions().alpha(2).inplace(true))};
       }},
      {"selu", x, [](In in) -> TensorVector { return {F::selu(in[0])}; }},
      {"hardshrink", x, [](In in) -> TensorVector { return {F::hardshrink(in[0])}; }},
      {"hardtanh", x, [](In in) -> TensorVector { return {F::hardtanh(in[0])}; }},
      {"leaky_relu", x, [](In in) -> TensorVector { return {F::leaky_relu(in[0])}; }},
      {"logsigmoid", x, [](In in) -> TensorVector { return {F::logsigmoid(in[0])}; }},
      {"gumbel_softmax", x,
       [](In in) -> TensorVector {
         return {F::gumbel_softmax(in[0], F::GumbelSoftmaxFuncOptions().dim(1))};
       },
       nullptr, 17, true},
      {"gumbel_softmax", x,
       [](In in) -> TensorVector {
         return {F::gumbel_softmax(in[0], F::GumbelSoftmaxFuncOptions().hard(true).dim(1))};
       },
       nullptr, 17, true},
      {"softmax", x, [](In in) -> TensorVector { return {F::softmax(in[0], 1)}; }},
      {"softmax", x,
       [](In in) -> TensorVector {
         return {F::softmax(in[0], F::SoftmaxFuncOptions(0).dtype(torch::kDouble))};
       }},
      {"softmin", x, [](In in) -> TensorVector { return {F::softmin(in[0], 1)}; }},
      {"log_softmax", x, [](In in) -> TensorVector { return {F::log_softmax(in[0], 1)}; }},
      {"glu", x, [](In in) -> TensorVector { return {F::glu(in[0])}; }},
      {"gelu", x, [](In in) -> TensorVector { return {F::gelu(in[0])}; }},
      {"gelu", x,
       [](In in) -> TensorVector {
         return {F::gelu(in[0], F::GELUFuncOptions().approximate("tanh"))};
       }},
      {"silu", x, [](In in) -> TensorVector { return {F::silu(in[0])}; }},
      {"mish", x, [](In in) -> TensorVector { return {F::mish(in[0])}; }},
      {"prelu",
       {x[0], torch::rand({4})},
       [](In in) -> TensorVector { return {F::prelu(in[0], in[1])}; }},
      {"relu", x, [](In in) -> TensorVector { return {F::relu(in[0])}; }},
      {"relu", x,
       [](In in) -> TensorVector { return {F::relu(in[0].clone(), F::ReLUFuncOptions(true))}; }},
      {"relu6", x, [](In in) -> TensorVector { return {F::relu6(in[0])}; }},
      {"relu6", x,
       [](In in) -> TensorVector { return {F::relu6(in[0].clone(), F::ReLU6FuncOptions(true))}; }},
      {"rrelu", x, [](In in) -> TensorVector { return {F::rrelu(in[0])}; }},
      {"rrelu", x,
       [](In in) -> TensorVector {
         return {F::rrelu(in[0], F::RReLUFuncOptions().training(true))};
       },
       nullptr, 17, true},
      {"celu", x, [](In in) -> TensorVector { return {F::celu(in[0])}; }},
      {"softplus", x, [](In in) -> TensorVector { return {F::softplus(in[0])}; }},
      {"softshrink", x, [](In in) -> TensorVector { return {F::softshrink(in[0])}; }},
      {"softsign", x, [](In in) -> TensorVector { return {F::softsign(in[0])}; }},
      {"tanhshrink", x, [](In in) -> TensorVector { return {F::tanhshrink(in[0])}; }},
      {"threshold", x,
       [](In in) -> TensorVector {
         return {F::threshold(in[0], F::ThresholdFuncOptions(0.5, 2))};
       }},
      {"multi_head_attention_forward",
       {torch::randn({5, 2, 4}), torch::randn({6, 2, 4}), torch::randn({12, 4}), torch::randn({12}),
        torch::randn({4, 4}), torch::randn({4})},
       [](In in) {
         return both(
             F::multi_head_attention_forward(in[0], in[1], in[1],
                                             F::MultiheadAttentionForwardFuncOptions(
                                                 4, 2, in[2], in[3], {}, {}, false, 0, in[4], in[5])
                                                 .training(false)));
       }},
  };
}

std::vector<FrontEndCase> layer_calls() {
  const at::Tensor x = images(), s = signals(), v = volumes();
  const TensorVector rows = {torch::randn({3, 4})};
  const auto weight = [](at::IntArrayRef sizes) { return torch::randn(sizes) * 0.3; };
  const TensorVector statistics = {torch::randn({4}), torch::rand({4}) + 0.5};
  return {
      {"batch_norm",
       {x, statistics[0], statistics[1]},
       [](In in) -> TensorVector { return {F::batch_norm(in[0], in[1], in[2])}; }},
      {"batch_norm",
       {x},
       [](In in) -> TensorVector {
         return {F::batch_norm(in[0], {}, {}, F::BatchNormFuncOptions().training(true))};
       }},
      {"conv1d",
       {s, weight({3, 4, 3})},
       [](In in) -> TensorVector { return {F::conv1d(in[0], in[1])}; }},
      {"conv1d",
       {s, weight({3, 4, 3})},
       [](In in) -> TensorVector {
         return {F::conv1d(in[0], in[1], F::Conv1dFuncOptions().padding(torch::kSame))};
       }},
      {"conv2d",
       {x, weight({3, 4, 3, 3})},
       [](In in) -> TensorVector {
         return {F::conv2d(in[0], in[1], F::Conv2dFuncOptions().padding(1).stride(2))};
       }},
      {"conv2d",
       {x, weight({3, 4, 4, 3})},
       [](In in) -> TensorVector {
         return {F::conv2d(in[0], in[1], F::Conv2dFuncOptions().padding(torch::kSame).dilation(2))};
       }},
      {"conv2d",
       {x[0], weight({3, 4, 3, 3})},
       [](In in) -> TensorVector {
         return {F::conv2d(in[0], in[1], F::Conv2dFuncOptions().padding(torch::kValid))};
       }},
      {"conv3d",
       {v, weight({3, 2, 3, 3, 3})},
       [](In in) -> TensorVector { return {F::conv3d(in[0], in[1])}; }},
      {"conv3d",
       {v, weight({3, 2, 2, 3, 3})},
       [](In in) -> TensorVector {
         return {F::conv3d(in[0], in[1], F::Conv3dFuncOptions().padding(torch::kSame))};
       }},
      {"conv_transpose1d",
       {s, weight({4, 3, 3})},
       [](In in) -> TensorVector { return {F::conv_transpose1d(in[0], in[1])}; }},
      {"conv_transpose2d",
       {x, weight({4, 3, 3, 3})},
       [](In in) -> TensorVector {
         return {F::conv_transpose2d(in[0], in[1],
                                     F::ConvTranspose2dFuncOptions().stride(2).output_padding(1))};
       }},
      {"conv_transpose3d",
       {v, weight({2, 3, 3, 3, 3})},
       [](In in) -> TensorVector { return {F::conv_transpose3d(in[0], in[1])}; }},
      {"cosine_similarity",
       {rows[0], rows[0] + 1},
       [](In in) -> TensorVector { return {F::cosine_similarity(in[0], in[1])}; }},
      {"pairwise_distance",
       {rows[0], rows[0] + 1},
       [](In in) -> TensorVector { return {F::pairwise_distance(in[0], in[1])}; }},
      {"pdist", rows, [](In in) -> TensorVector { return {F::pdist(in[0])}; }},
      {"dropout", rows,
       [](In in) -> TensorVector {
         return {F::dropout(in[0], F::DropoutFuncOptions().training(false))};
       }},
      {"dropout2d",
       {x},
       [](In in) -> TensorVector {
         return {F::dropout2d(in[0], F::Dropout2dFuncOptions().training(false))};
       }},
      {"dropout3d",
       {v},
       [](In in) -> TensorVector {
         return {F::dropout3d(in[0], F::Dropout3dFuncOptions().training(false))};
       }},
      {"alpha_dropout", rows,
       [](In in) -> TensorVector {
         return {F::alpha_dropout(in[0], F::AlphaDropoutFuncOptions().training(false))};
       }},
      {"feature_alpha_dropout",
       {x},
       [](In in) -> TensorVector {
         return {
             F::feature_alpha_dropout(in[0], F::FeatureAlphaDropoutFuncOptions().training(false))};
       }},
      {"one_hot",
       {torch::tensor({2, 0, 1})},
       [](In in) -> TensorVector { return {F::one_hot(in[0], 4)}; }},
      {"embedding",
       {torch::tensor({2, 0, 1}), torch::randn({3, 4})},
       [](In in) -> TensorVector { return {F::embedding(in[0], in[1])}; }},
      {"embedding_bag",
       {torch::tensor({{2, 0}, {1, 1}}), torch::randn({3, 4})},
       [](In in) -> TensorVector { return {F::embedding_bag(in[0], in[1])}; }},
      {"fold",
       {torch::randn({2, 12, 4})},
       [](In in) -> TensorVector {
         return {F::fold(in[0], F::FoldFuncOptions({3, 3}, {2, 2}))};
       },
       nullptr,
       18},
      {"unfold",
       {x},
       [](In in) -> TensorVector {
         return {F::unfold(in[0], F::UnfoldFuncOptions({2, 3}).padding(1).stride(2))};
       }},
      {"instance_norm", {x}, [](In in) -> TensorVector { return {F::instance_norm(in[0])}; }},
      {"bilinear",
       {rows[0], rows[0] + 1, torch::randn({5, 4, 4}), torch::randn({5})},
       [](In in) -> TensorVector { return {F::bilinear(in[0], in[1], in[2], in[3])}; }},
      {"linear",
       {rows[0], torch::randn({5, 4}), torch::randn({5})},
       [](In in) -> TensorVector { return {F::linear(in[0], in[1], in[2])}; }},
      {"normalize", rows, [](In in) -> TensorVector { return {F::normalize(in[0])}; }},
      {"normalize", rows,
       [](In in) -> TensorVector {
         return {F::normalize(in[0], F::NormalizeFuncOptions().p(1).dim(0))};
       }},
      {"layer_norm", rows,
       [](In in) -> TensorVector { return {F::layer_norm(in[0], F::LayerNormFuncOptions({4}))}; }},
      {"local_response_norm",
       {x},
       [](In in) -> TensorVector {
         return {F::local_response_norm(in[0], F::LocalResponseNormFuncOptions(3))};
       }},
      {"local_response_norm",
       {s},
       [](In in) -> TensorVector {
         return {F::local_response_norm(in[0], F::LocalResponseNormFuncOptions(2))};
       }},
      {"group_norm",
       {x},
       [](In in) -> TensorVector { return {F::group_norm(in[0], F::GroupNormFuncOptions(2))}; }},
      {"pad",
       {x},
       [](In in) -> TensorVector {
         return {F::pad(in[0], F::PadFuncOptions({1, 2}))};
       }},
      {"pad",
       {x},
       [](In in) -> TensorVector {
         return {F::pad(in[0], F::PadFuncOptions({1, 2, 0, 1}).value(3))};
       }},
      {"pad",
       {x},
       [](In in) -> TensorVector {
         return {F::pad(in[0], F::PadFuncOptions({1, 2, 0, 1}).mode(torch::kReflect))};
       }},
      {"pad",
       {x},
       [](In in) -> TensorVector {
         return {F::pad(in[0], F::PadFuncOptions({1, 2, 0, 1}).mode(torch::kReplicate))};
       }},
      {"pad",
       {x},
       [](In in) -> TensorVector {
         return {F::pad(in[0], F::PadFuncOptions({1, 2, 0, 1}).mode(torch::kCircular))};
       }},
      {"pixel_shuffle",
       {x},
       [](In in) -> TensorVector {
         return {F::pixel_shuffle(in[0], F::PixelShuffleFuncOptions(2))};
       }},
      {"pixel_unshuffle",
       {x},
       [](In in) -> TensorVector {
         return {F::pixel_unshuffle(in[0], F::PixelUnshuffleFuncOptions(2))};
       }},
      {"affine_grid",
       {torch::randn({2, 2, 3})},
       [](In in) -> TensorVector {
         return {F::affine_grid(in[0], {2, 3, 4, 5})};
       },
       nullptr,
       20},
      {"affine_grid",
       {torch::randn({2, 3, 4})},
       [](In in) -> TensorVector {
         return {F::affine_grid(in[0], {2, 3, 4, 5, 3}, true)};
       },
       nullptr,
       20},
      {"grid_sample",
       {x, torch::rand({2, 3, 5, 2}) * 2 - 1},
       [](In in) -> TensorVector {
         return {F::grid_sample(in[0], in[1], F::GridSampleFuncOptions().align_corners(false))};
       }},
      {"grid_sample",
       {v, torch::rand({1, 3, 5, 2, 3}) * 2 - 1},
       [](In in) -> TensorVector {
         return {F::grid_sample(in[0], in[1], F::GridSampleFuncOptions().align_corners(true))};
       },
       nullptr,
       20},
  };
}

std::vector<FrontEndCase> resizing_calls() {
  const at::Tensor x = images(), s = signals(), v = volumes();
  std::vector<FrontEndCase> cases;
  const auto add = [&](const at::Tensor& input, const F::InterpolateFuncOptions& options,
                       int opset = 17) {
    cases.push_back({"interpolate",
                     {input},
                     [=](In in) -> TensorVector { return {F::interpolate(in[0], options)}; },
                     nullptr,
                     opset});
  };
  using Options = F::InterpolateFuncOptions;
  using Sizes = std::vector<std::int64_t>;
  using Factors = std::vector<double>;
  add(s, Options().scale_factor(Factors{2}).mode(torch::kNearest));
  add(x, Options().scale_factor(Factors{2, 1.5}).mode(torch::kNearest));
  add(v, Options().size(Sizes{6, 6, 7}).mode(torch::kNearest));
  add(s, Options().size(Sizes{7}).mode(torch::kNearestExact));
  add(x, Options().size(Sizes{7, 12}).mode(torch::kNearestExact));
  add(v, Options().size(Sizes{6, 6, 7}).mode(torch::kNearestExact));
  add(s, Options().size(Sizes{5}).mode(torch::kArea));
  add(x, Options().size(Sizes{4, 3}).mode(torch::kArea));
  add(v, Options().size(Sizes{3, 3, 4}).mode(torch::kArea));
  add(s, Options().size(Sizes{7}).mode(torch::kLinear).align_corners(false));
  add(x, Options().scale_factor(Factors{1.5, 2}).mode(torch::kBilinear).align_corners(false));
  add(x, Options()
             .scale_factor(Factors{1.4, 2})
             .mode(torch::kBilinear)
             .align_corners(false)
             .recompute_scale_factor(true));
  add(x, Options().size(Sizes{7, 12}).mode(torch::kBilinear).align_corners(true));
  add(x, Options().size(Sizes{7, 12}).mode(torch::kBicubic).align_corners(false));
  add(v, Options().size(Sizes{6, 6, 7}).mode(torch::kTrilinear).align_corners(false));
  add(x, Options().size(Sizes{4, 5}).mode(torch::kBilinear).align_corners(false).antialias(true),
      18);
  add(x, Options().size(Sizes{4, 5}).mode(torch::kBicubic).align_corners(false).antialias(true),
      18);
  return cases;
}

std::vector<FrontEndCase> pooling_calls() {
  const TensorVector x = {images()}, s = {signals()}, v = {volumes()};
  return {
      {"avg_pool1d", s,
       [](In in) -> TensorVector { return {F::avg_pool1d(in[0], F::AvgPool1dFuncOptions(2))}; }},
      {"avg_pool2d", x,
       [](In in) -> TensorVector { return {F::avg_pool2d(in[0], F::AvgPool2dFuncOptions(2))}; }},
      {"avg_pool2d", x,
       [](In in) -> TensorVector {
         return {F::avg_pool2d(
             in[0],
             F::AvgPool2dFuncOptions(3).stride(2).padding(1).ceil_mode(true).count_include_pad(
                 false))};
       }},
      {"avg_pool2d", x,
       [](In in) -> TensorVector {
         return {F::avg_pool2d(in[0], F::AvgPool2dFuncOptions(2).divisor_override(3))};
       }},
      {"avg_pool3d", v,
       [](In in) -> TensorVector { return {F::avg_pool3d(in[0], F::AvgPool3dFuncOptions(2))}; }},
      {"max_pool1d", s,
       [](In in) -> TensorVector { return {F::max_pool1d(in[0], F::MaxPool1dFuncOptions(2))}; }},
      {"max_pool2d", x,
       [](In in) -> TensorVector {
         return {F::max_pool2d(in[0], F::MaxPool2dFuncOptions(3).stride(2).padding(1))};
       }},
      {"max_pool3d", v,
       [](In in) -> TensorVector { return {F::max_pool3d(in[0], F::MaxPool3dFuncOptions(2))}; }},
      {"max_pool1d_with_indices", s,
       [](In in) { return both(F::max_pool1d_with_indices(in[0], F::MaxPool1dFuncOptions(2))); }},
      {"max_pool2d_with_indices", x,
       [](In in) { return both(F::max_pool2d_with_indices(in[0], F::MaxPool2dFuncOptions(2))); }},
      {"max_pool3d_with_indices", v,
       [](In in) { return both(F::max_pool3d_with_indices(in[0], F::MaxPool3dFuncOptions(2))); }},
      {"adaptive_max_pool1d", s,
       [](In in) -> TensorVector {
         return {F::adaptive_max_pool1d(in[0], F::AdaptiveMaxPool1dFuncOptions(3))};
       }},
      {"adaptive_max_pool2d", x,
       [](In in) -> TensorVector {
         return {F::adaptive_max_pool2d(in[0], F::AdaptiveMaxPool2dFuncOptions({3, 4}))};
       }},
      {"adaptive_max_pool3d", v,
       [](In in) -> TensorVector {
         return {F::adaptive_max_pool3d(in[0], F::AdaptiveMaxPool3dFuncOptions({2, 3, 5}))};
       }},
      {"adaptive_max_pool1d_with_indices", s,
       [](In in) {
         return both(
             F::adaptive_max_pool1d_with_indices(in[0], F::AdaptiveMaxPool1dFuncOptions(3)));
       }},
      {"adaptive_max_pool2d_with_indices", x,
       [](In in) {
         return both(
             F::adaptive_max_pool2d_with_indices(in[0], F::AdaptiveMaxPool2dFuncOptions({3, 4})));
       }},
      {"adaptive_max_pool3d_with_indices", v,
       [](In in) {
         return both(F::adaptive_max_pool3d_with_indices(
             in[0], F::AdaptiveMaxPool3dFuncOptions({2, 3, 5})));
       }},
      {"adaptive_avg_pool1d", s,
       [](In in) -> TensorVector {
         return {F::adaptive_avg_pool1d(in[0], F::AdaptiveAvgPool1dFuncOptions(4))};
       }},
      {"adaptive_avg_pool2d", x,
       [](In in) -> TensorVector {
         return {F::adaptive_avg_pool2d(in[0], F::AdaptiveAvgPool2dFuncOptions({4, 3}))};
       }},
      {"adaptive_avg_pool3d", v,
       [](In in) -> TensorVector {
         return {F::adaptive_avg_pool3d(in[0], F::AdaptiveAvgPool3dFuncOptions({2, 4, 3}))};
       }},
      {"max_unpool1d",
       {torch::randn({2, 4, 3}), torch::tensor({0, 3, 5}).expand({2, 4, 3}).clone()},
       [](In in) -> TensorVector {
         return {F::max_unpool1d(in[0], in[1], F::MaxUnpool1dFuncOptions(2))};
       }},
      {"max_unpool2d",
       {torch::randn({2, 4, 1, 3}), torch::tensor({0, 9, 5}).expand({2, 4, 1, 3}).clone()},
       [](In in) -> TensorVector {
         return {F::max_unpool2d(in[0], in[1], F::MaxUnpool2dFuncOptions(2))};
       }},
      {"max_unpool3d",
       {torch::randn({2, 4, 1, 1, 3}), torch::tensor({0, 9, 5}).expand({2, 4, 1, 1, 3}).clone()},
       [](In in) -> TensorVector {
         return {F::max_unpool3d(in[0], in[1], F::MaxUnpool3dFuncOptions(2))};
       }},
      {"fractional_max_pool2d",
       {x[0], torch::rand({2, 4, 2})},
       [](In in) -> TensorVector {
         return {F::fractional_max_pool2d(
             in[0], F::FractionalMaxPool2dFuncOptions(2).output_size(3)._random_samples(in[1]))};
       }},
      {"fractional_max_pool3d",
       {v[0], torch::rand({1, 2, 3})},
       [](In in) -> TensorVector {
         return {F::fractional_max_pool3d(
             in[0], F::FractionalMaxPool3dFuncOptions(2).output_size(2)._random_samples(in[1]))};
       }},
      {"fractional_max_pool2d_with_indices",
       {x[0], torch::rand({2, 4, 2})},
       [](In in) {
         return both(F::fractional_max_pool2d_with_indices(
             in[0], F::FractionalMaxPool2dFuncOptions(2).output_size(3)._random_samples(in[1])));
       }},
      {"fractional_max_pool3d_with_indices",
       {v[0], torch::rand({1, 2, 3})},
       [](In in) {
         return both(F::fractional_max_pool3d_with_indices(
             in[0], F::FractionalMaxPool3dFuncOptions(2).output_size(2)._random_samples(in[1])));
       }},
      {"lp_pool1d",
       {s[0].abs()},
       [](In in) -> TensorVector { return {F::lp_pool1d(in[0], F::LPPool1dFuncOptions(2, 3))}; }},
      {"lp_pool2d",
       {x[0].abs()},
       [](In in) -> TensorVector { return {F::lp_pool2d(in[0], F::LPPool2dFuncOptions(3, 2))}; }},
      {"lp_pool3d",
       {v[0].abs()},
       [](In in) -> TensorVector { return {F::lp_pool3d(in[0], F::LPPool3dFuncOptions(2, 2))}; }},
  };
}

std::vector<FrontEndCase> loss_calls() {
  const TensorVector pair = {torch::randn({5, 4}), torch::randn({5, 4})};
  const TensorVector likely = {chances({5, 4}), chances({5, 4})};
  const TensorVector signed_pair = {pair[0], signs({5, 4})};
  const at::Tensor classes = torch::tensor({0, 3, 2, 1, 2});
  const TensorVector three = {pair[0], pair[1], torch::randn({5, 4})};
  return {
      {"l1_loss", pair, [](In in) -> TensorVector { return {F::l1_loss(in[0], in[1])}; }},
      {"kl_div",
       {likely[0].log(), likely[1]},
       [](In in) -> TensorVector {
         return {F::kl_div(in[0], in[1], F::KLDivFuncOptions(torch::kBatchMean))};
       }},
      {"mse_loss", pair, [](In in) -> TensorVector { return {F::mse_loss(in[0], in[1])}; }},
      {"binary_cross_entropy", likely,
       [](In in) -> TensorVector { return {F::binary_cross_entropy(in[0], in[1])}; }},
      {"binary_cross_entropy_with_logits",
       {pair[0], likely[1]},
       [](In in) -> TensorVector { return {F::binary_cross_entropy_with_logits(in[0], in[1])}; }},
      {"hinge_embedding_loss", signed_pair,
       [](In in) -> TensorVector { return {F::hinge_embedding_loss(in[0], in[1])}; }},
      {"multi_margin_loss",
       {pair[0], classes},
       [](In in) -> TensorVector { return {F::multi_margin_loss(in[0], in[1])}; }},
      {"cosine_embedding_loss",
       {pair[0], pair[1], signs({5})},
       [](In in) -> TensorVector { return {F::cosine_embedding_loss(in[0], in[1], in[2])}; }},
      {"smooth_l1_loss", pair,
       [](In in) -> TensorVector { return {F::smooth_l1_loss(in[0], in[1])}; }},
      {"smooth_l1_loss", pair,
       [](In in) -> TensorVector {
         return {F::smooth_l1_loss(in[0], in[1], F::SmoothL1LossFuncOptions(), 0.5)};
       }},
      {"huber_loss", pair, [](In in) -> TensorVector { return {F::huber_loss(in[0], in[1])}; }},
      {"multilabel_margin_loss",
       {pair[0], torch::tensor({3, 0, -1, 1}).expand({5, 4}).clone()},
       [](In in) -> TensorVector { return {F::multilabel_margin_loss(in[0], in[1])}; }},
      {"soft_margin_loss", signed_pair,
       [](In in) -> TensorVector { return {F::soft_margin_loss(in[0], in[1])}; }},
      {"multilabel_soft_margin_loss",
       {pair[0], likely[0].round()},
       [](In in) -> TensorVector { return {F::multilabel_soft_margin_loss(in[0], in[1])}; }},
      {"triplet_margin_loss", three,
       [](In in) -> TensorVector { return {F::triplet_margin_loss(in[0], in[1], in[2])}; }},
      {"triplet_margin_with_distance_loss", three,
       [](In in) -> TensorVector {
         return {F::triplet_margin_with_distance_loss(in[0], in[1], in[2])};
       }},
      {"ctc_loss",
       {torch::randn({7, 2, 5}).log_softmax(2), torch::tensor({{1, 2}, {3, 1}}),
        torch::tensor({7, 7}), torch::tensor({2, 2})},
       [](In in) -> TensorVector { return {F::ctc_loss(in[0], in[1], in[2], in[3])}; }},
      {"poisson_nll_loss", pair,
       [](In in) -> TensorVector { return {F::poisson_nll_loss(in[0], in[1])}; }},
      {"margin_ranking_loss",
       {pair[0], pair[1], signs({5, 4})},
       [](In in) -> TensorVector { return {F::margin_ranking_loss(in[0], in[1], in[2])}; }},
      {"nll_loss",
       {likely[0].log(), classes},
       [](In in) -> TensorVector { return {F::nll_loss(in[0], in[1])}; }},
      {"nll_loss",
       {chances({2, 4, 3, 3}).log(), torch::randint(0, 4, {2, 3, 3})},
       [](In in) -> TensorVector { return {F::nll_loss(in[0], in[1])}; }},
      {"cross_entropy",
       {pair[0], classes},
       [](In in) -> TensorVector { return {F::cross_entropy(in[0], in[1])}; }},
      {"cross_entropy",
       {pair[0], likely[1].softmax(1)},
       [](In in) -> TensorVector { return {F::cross_entropy(in[0], in[1])}; }},
  };
}

std::vector<FrontEndCase> all_functionals() {
  torch::manual_seed(21);
  std::vector<FrontEndCase> all;
  for (const auto& part :
       {activation_calls(), layer_calls(), resizing_calls(), pooling_calls(), loss_calls()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(FrontEnd, EveryFunctionalOfTheHeadersHasACase) {
  std::set<std::string> names =
      names_in_headers("functional", std::regex(R"(^inline .*\b([a-z]\w*)\()"));
  EXPECT_GT(names.size(), 100U);
  names.erase("padding_unwrap");  // of the headers' own
  EXPECT_EQ(names_of_cases(all_functionals()), names);
}

TEST(FrontEnd, EveryFunctionalLeaves) {
  std::set<std::string> with_reasons;
  for (const FrontEndCase& one : all_functionals()) {
    if (!take_away(one).empty()) with_reasons.insert(one.name);
  }
  EXPECT_THAT(with_reasons,
              ::testing::ElementsAre("ctc_loss", "fractional_max_pool2d",
                                     "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
                                     "fractional_max_pool3d_with_indices", "multi_margin_loss",
                                     "multilabel_margin_loss", "pdist"));
}

}  // namespace
}  // namespace mezzo::deploy
