// Every module of LibTorch's headers leaves as a trace, as a module in 16 bits, and as an ONNX file
// or with a reason why not.
#include "front_end.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;

template <typename T>
void add_to(TensorVector* all, const T& value) {
  if constexpr (std::is_convertible_v<T, at::Tensor>) {
    all->push_back(value);
  } else if constexpr (std::is_same_v<T, nn::ASMoutput>) {
    all->push_back(value.output);
    all->push_back(at::scalar_tensor(value.loss));
  } else {
    std::apply([&](const auto&... each) { (add_to(all, each), ...); }, value);
  }
}

/// The module's `forward` with as many tensors as there are inputs.
template <typename Holder>
FrontEndCase of(const std::string& name, Holder module, const TensorVector& inputs,
                int opset = 17) {
  const auto call = [module](const TensorVector& in) mutable {
    TensorVector all;
    if constexpr (requires { module->forward(in[0]); }) {
      if (in.size() == 1) add_to(&all, module->forward(in[0]));
    }
    if constexpr (requires { module->forward(in[0], in[1]); }) {
      if (in.size() == 2) add_to(&all, module->forward(in[0], in[1]));
    }
    if constexpr (requires { module->forward(in[0], in[1], in[2]); }) {
      if (in.size() == 3) add_to(&all, module->forward(in[0], in[1], in[2]));
    }
    if constexpr (requires { module->forward(in[0], in[1], in[2], in[3]); }) {
      if (in.size() == 4) add_to(&all, module->forward(in[0], in[1], in[2], in[3]));
    }
    return all;
  };
  return {name, inputs, call, module.ptr(), opset};
}

TensorVector an_image() {
  return {torch::randn({2, 4, 6, 8})};
}
TensorVector a_signal() {
  return {torch::randn({2, 4, 9})};
}
TensorVector a_volume() {
  return {torch::randn({1, 2, 4, 6, 5})};
}

std::vector<FrontEndCase> activation_modules() {
  const TensorVector x = {torch::randn({3, 4}) * 2};
  return {of("ELU", nn::ELU(), x),
          of("SELU", nn::SELU(), x),
          of("Hardshrink", nn::Hardshrink(), x),
          of("Hardtanh", nn::Hardtanh(), x),
          of("LeakyReLU", nn::LeakyReLU(), x),
          of("LogSigmoid", nn::LogSigmoid(), x),
          of("Softmax", nn::Softmax(1), x),
          of("Softmin", nn::Softmin(1), x),
          of("LogSoftmax", nn::LogSoftmax(1), x),
          of("Softmax2d", nn::Softmax2d(), an_image()),
          of("PReLU", nn::PReLU(nn::PReLUOptions().num_parameters(4)), x),
          of("ReLU", nn::ReLU(), x),
          of("ReLU", nn::ReLU(nn::ReLUOptions(true)), x),
          of("ReLU6", nn::ReLU6(), x),
          of("RReLU", nn::RReLU(), x),
          of("CELU", nn::CELU(), x),
          of("GLU", nn::GLU(), x),
          of("GELU", nn::GELU(), x),
          of("SiLU", nn::SiLU(), x),
          of("Mish", nn::Mish(), x),
          of("Sigmoid", nn::Sigmoid(), x),
          of("Softplus", nn::Softplus(), x),
          of("Softshrink", nn::Softshrink(), x),
          of("Softsign", nn::Softsign(), x),
          of("Tanh", nn::Tanh(), x),
          of("Tanhshrink", nn::Tanhshrink(), x),
          of("Threshold", nn::Threshold(0.1, 20), x),
          of("MultiheadAttention", nn::MultiheadAttention(4, 2),
             {torch::randn({5, 2, 4}), torch::randn({6, 2, 4}), torch::randn({6, 2, 4})}),
          of("MultiheadAttention",
             nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).add_bias_kv(true)),
             {torch::randn({5, 2, 4}), torch::randn({6, 2, 4}), torch::randn({6, 2, 4})})};
}

std::vector<FrontEndCase> layer_modules() {
  const TensorVector x = {torch::randn({3, 4})}, pair = {x[0], torch::randn({3, 4})};
  const TensorVector image = an_image(), signal = a_signal(), volume = a_volume();
  const auto circular = nn::Conv2dOptions(4, 3, 3).padding(1).padding_mode(torch::kCircular);
  return {
      of("BatchNorm1d", nn::BatchNorm1d(4), signal),
      of("BatchNorm2d", nn::BatchNorm2d(4), image),
      of("BatchNorm2d", nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false)),
         image),
      of("BatchNorm3d", nn::BatchNorm3d(2), volume),
      of("InstanceNorm1d", nn::InstanceNorm1d(4), signal),
      of("InstanceNorm2d", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true)), image),
      of("InstanceNorm2d",
         nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).track_running_stats(true)), image),
      of("InstanceNorm3d", nn::InstanceNorm3d(2), volume),
      of("LayerNorm", nn::LayerNorm(nn::LayerNormOptions({4})), x),
      of("LocalResponseNorm", nn::LocalResponseNorm(2), image),
      of("CrossMapLRN2d", nn::CrossMapLRN2d(3), image),
      of("GroupNorm", nn::GroupNorm(2, 4), image),
      of("Conv1d", nn::Conv1d(nn::Conv1dOptions(4, 3, 3).padding(torch::kSame)), signal),
      of("Conv1d", nn::Conv1d(nn::Conv1dOptions(4, 3, 3).padding(1).padding_mode(torch::kReflect)),
         signal),
      of("Conv2d", nn::Conv2d(4, 3, 3), image),
      of("Conv2d", nn::Conv2d(circular), image),
      of("Conv2d",
         nn::Conv2d(
             nn::Conv2dOptions(4, 3, 3).padding(torch::kSame).padding_mode(torch::kReplicate)),
         image),
      of("Conv3d",
         nn::Conv3d(nn::Conv3dOptions(2, 3, 3).padding(1).padding_mode(torch::kReplicate)), volume),
      of("ConvTranspose1d", nn::ConvTranspose1d(4, 3, 3), signal),
      of("ConvTranspose2d", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 3).stride(2)),
         image),
      of("ConvTranspose3d", nn::ConvTranspose3d(2, 3, 3), volume),
      of("CosineSimilarity", nn::CosineSimilarity(), pair),
      of("PairwiseDistance", nn::PairwiseDistance(), pair),
      of("Dropout", nn::Dropout(), x),
      of("Dropout2d", nn::Dropout2d(), image),
      of("Dropout3d", nn::Dropout3d(), volume),
      of("AlphaDropout", nn::AlphaDropout(), x),
      of("FeatureAlphaDropout", nn::FeatureAlphaDropout(), image),
      of("Embedding", nn::Embedding(5, 4), {torch::tensor({{2, 0}, {4, 1}})}),
      of("EmbeddingBag", nn::EmbeddingBag(5, 4), {torch::tensor({{2, 0}, {4, 1}})}),
      of("EmbeddingBag", nn::EmbeddingBag(5, 4),
         {torch::tensor({2, 0, 4, 1}), torch::tensor({0, 3})}),
      of("Fold", nn::Fold(nn::FoldOptions({3, 3}, {2, 2})), {torch::randn({2, 12, 4})}, 18),
      of("Unfold", nn::Unfold(nn::UnfoldOptions({2, 3}).stride(2)), image),
      of("Identity", nn::Identity(), x),
      of("Linear", nn::Linear(4, 5), x),
      of("Flatten", nn::Flatten(), image),
      of("Unflatten", nn::Unflatten(nn::UnflattenOptions(1, {2, 2})), image),
      of("Bilinear", nn::Bilinear(4, 4, 5), pair),
      of("PixelShuffle", nn::PixelShuffle(2), image),
      of("PixelUnshuffle", nn::PixelUnshuffle(2), image),
      of("Upsample", nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 3})),
         image),
      of("AdaptiveLogSoftmaxWithLoss",
         nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(16, 6, {2, 4})),
         {torch::randn({9, 16}), torch::tensor({0, 1, 0, 2, 3, 2, 4, 5, 4})}),
      of("Sequential", nn::Sequential(nn::Linear(4, 5), nn::ReLU()), x),
      of("Functional",
         nn::Functional([](const at::Tensor& in) { return torch::nn::functional::silu(in); }), x)};
}

std::vector<FrontEndCase> padding_modules() {
  const TensorVector image = an_image(), signal = a_signal(), volume = a_volume();
  return {
      of("ReflectionPad1d", nn::ReflectionPad1d(2), signal),
      of("ReflectionPad2d", nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 0, 3})), image),
      of("ReflectionPad3d", nn::ReflectionPad3d(1), volume),
      of("ReplicationPad1d", nn::ReplicationPad1d(2), signal),
      of("ReplicationPad2d", nn::ReplicationPad2d(nn::ReplicationPad2dOptions({1, 2, 0, 3})),
         image),
      of("ReplicationPad3d", nn::ReplicationPad3d(2), volume),
      of("ZeroPad1d", nn::ZeroPad1d(2), signal),
      of("ZeroPad2d", nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 2, -1, 3})), image),
      of("ZeroPad3d", nn::ZeroPad3d(2), volume),
      of("ConstantPad1d", nn::ConstantPad1d(2, 3.5), signal),
      of("ConstantPad2d", nn::ConstantPad2d(2, -1), image),
      of("ConstantPad3d", nn::ConstantPad3d(1, 2), volume)};
}

std::vector<FrontEndCase> pooling_modules() {
  const TensorVector image = an_image(), signal = a_signal(), volume = a_volume();
  const TensorVector positive = {image[0][0].abs()};
  return {
      of("AvgPool1d", nn::AvgPool1d(2), signal),
      of("AvgPool2d", nn::AvgPool2d(2), image),
      of("AvgPool3d", nn::AvgPool3d(2), volume),
      of("MaxPool1d", nn::MaxPool1d(2), signal),
      of("MaxPool2d", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).ceil_mode(true)), image),
      of("MaxPool3d", nn::MaxPool3d(2), volume),
      of("AdaptiveMaxPool1d", nn::AdaptiveMaxPool1d(3), signal),
      of("AdaptiveMaxPool2d", nn::AdaptiveMaxPool2d(2), image),
      of("AdaptiveMaxPool3d", nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({2, 3, 5})),
         volume),
      of("AdaptiveAvgPool1d", nn::AdaptiveAvgPool1d(4), signal),
      of("AdaptiveAvgPool2d", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({4, 3})), image),
      of("AdaptiveAvgPool3d", nn::AdaptiveAvgPool3d(3), volume),
      of("MaxUnpool1d", nn::MaxUnpool1d(2),
         {torch::randn({2, 4, 3}), torch::tensor({0, 3, 5}).expand({2, 4, 3}).clone()}),
      of("MaxUnpool2d", nn::MaxUnpool2d(2),
         {torch::randn({2, 4, 1, 3}), torch::tensor({0, 9, 5}).expand({2, 4, 1, 3}).clone()}),
      of("MaxUnpool3d", nn::MaxUnpool3d(2),
         {torch::randn({2, 4, 1, 1, 3}), torch::tensor({0, 9, 5}).expand({2, 4, 1, 1, 3}).clone()}),
      of("FractionalMaxPool2d",
         nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)._random_samples(
             torch::rand({2, 4, 2}))),
         image),
      of("FractionalMaxPool3d",
         nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(2)._random_samples(
             torch::rand({1, 2, 3}))),
         volume),
      of("LPPool1d", nn::LPPool1d(2, 3), positive),
      of("LPPool2d", nn::LPPool2d(2, 2), {image[0].abs()}),
      of("LPPool3d", nn::LPPool3d(2, 2), {volume[0].abs()})};
}

std::vector<FrontEndCase> sequence_modules() {
  const TensorVector steps = {torch::randn({5, 2, 4})}, word = {torch::randn({2, 4})};
  const TensorVector two = {steps[0], torch::randn({6, 2, 4})};
  const auto encoder = nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8);
  const auto decoder = nn::TransformerDecoderLayerOptions(4, 2).dim_feedforward(8);
  return {of("RNN", nn::RNN(4, 3), steps),
          of("LSTM", nn::LSTM(nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true)), steps),
          of("GRU", nn::GRU(nn::GRUOptions(4, 3).batch_first(true)), steps),
          of("RNNCell", nn::RNNCell(4, 3), word),
          of("LSTMCell", nn::LSTMCell(4, 3), word),
          of("GRUCell", nn::GRUCell(4, 3), word),
          of("Transformer",
             nn::Transformer(nn::TransformerOptions(4, 2)
                                 .num_encoder_layers(1)
                                 .num_decoder_layers(1)
                                 .dim_feedforward(8)),
             two),
          of("TransformerEncoder",
             nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder, 2)), steps),
          of("TransformerDecoder",
             nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder, 2)), two),
          of("TransformerEncoderLayer", nn::TransformerEncoderLayer(encoder), steps),
          of("TransformerDecoderLayer", nn::TransformerDecoderLayer(decoder), two)};
}

std::vector<FrontEndCase> loss_modules() {
  const TensorVector pair = {torch::randn({5, 4}), torch::randn({5, 4})};
  const TensorVector likely = {torch::rand({5, 4}) * 0.8 + 0.1, torch::rand({5, 4}) * 0.8 + 0.1};
  const at::Tensor classes = torch::tensor({0, 3, 2, 1, 2});
  const at::Tensor signs = torch::where(pair[1] > 0, 1.0, -1.0).to(torch::kFloat);
  const TensorVector signed_pair = {pair[0], signs};
  const TensorVector three = {pair[0], pair[1], torch::randn({5, 4})};
  return {
      of("L1Loss", nn::L1Loss(), pair),
      of("KLDivLoss", nn::KLDivLoss(), {likely[0].log(), likely[1]}),
      of("MSELoss", nn::MSELoss(), pair),
      of("BCELoss", nn::BCELoss(), likely),
      of("BCEWithLogitsLoss", nn::BCEWithLogitsLoss(), {pair[0], likely[1]}),
      of("HingeEmbeddingLoss", nn::HingeEmbeddingLoss(), signed_pair),
      of("MultiMarginLoss", nn::MultiMarginLoss(), {pair[0], classes}),
      of("CosineEmbeddingLoss", nn::CosineEmbeddingLoss(), {pair[0], pair[1], signs.select(1, 0)}),
      of("SmoothL1Loss", nn::SmoothL1Loss(), pair),
      of("HuberLoss", nn::HuberLoss(), pair),
      of("MultiLabelMarginLoss", nn::MultiLabelMarginLoss(),
         {pair[0], torch::tensor({3, 0, -1, 1}).expand({5, 4}).clone()}),
      of("SoftMarginLoss", nn::SoftMarginLoss(), signed_pair),
      of("MultiLabelSoftMarginLoss", nn::MultiLabelSoftMarginLoss(), {pair[0], likely[0].round()}),
      of("TripletMarginLoss", nn::TripletMarginLoss(), three),
      of("TripletMarginWithDistanceLoss", nn::TripletMarginWithDistanceLoss(), three),
      of("CTCLoss", nn::CTCLoss(),
         {torch::randn({7, 2, 5}).log_softmax(2), torch::tensor({{1, 2}, {3, 1}}),
          torch::tensor({7, 7}), torch::tensor({2, 2})}),
      of("PoissonNLLLoss", nn::PoissonNLLLoss(), pair),
      of("MarginRankingLoss", nn::MarginRankingLoss(), {pair[0], pair[1], signs}),
      of("NLLLoss", nn::NLLLoss(), {likely[0].log(), classes}),
      of("CrossEntropyLoss", nn::CrossEntropyLoss(), {pair[0], classes})};
}

std::vector<FrontEndCase> all_modules() {
  torch::manual_seed(22);
  std::vector<FrontEndCase> all;
  for (const auto& part : {activation_modules(), layer_modules(), padding_modules(),
                           pooling_modules(), sequence_modules(), loss_modules()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(FrontEnd, EveryModuleOfTheHeadersHasACase) {
  std::set<std::string> names = names_in_headers(
      "modules",
      std::regex(
          R"(^(?:TORCH_MODULE\(|class )(\w+)(?:\)| : public (?:torch::nn::)?ModuleHolder<))"));
  EXPECT_GT(names.size(), 120U);
  for (const char* holder : {"ModuleDict", "ModuleList", "ParameterDict", "ParameterList"})
    EXPECT_EQ(names.erase(holder), 1U) << "it holds others, and has no forward";
  EXPECT_EQ(names_of_cases(all_modules()), names);
}

TEST(FrontEnd, EveryModuleLeaves) {
  std::set<std::string> with_reasons;
  for (const FrontEndCase& one : all_modules()) {
    if (!take_away(one).empty()) with_reasons.insert(one.name);
  }
  EXPECT_THAT(with_reasons,
              ::testing::ElementsAre("CTCLoss", "FractionalMaxPool2d", "FractionalMaxPool3d",
                                     "MultiLabelMarginLoss", "MultiMarginLoss"));
}

}  // namespace
}  // namespace mezzo::deploy
