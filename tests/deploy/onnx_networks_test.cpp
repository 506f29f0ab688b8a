// Whole networks leave C++ as ONNX files, with axes of any size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "dcgan/networks.h"
#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"
#include "networks/networks.h"
#include "networks/recent_networks.h"
#include "run_file.h"
#include "word_language_model/language_model.h"

namespace mezzo::deploy {
namespace {

using namespace networks;
using ::testing::HasSubstr;

OnnxOptions judged(DynamicAxes axes) {
  OnnxOptions options = judged_options();
  options.dynamic_axes = std::move(axes);
  return options;
}

template <typename Net>
void expect_exported(Net net, const Examples& examples, DynamicAxes axes) {
  torch::manual_seed(12);
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("mezzo_net_" + std::to_string(getpid()) + ".onnx");
  const std::string message = message_of([&] {
    const ExportReport report = export_onnx(net, examples, file, judged(std::move(axes)));
    EXPECT_FALSE(report.verified.empty());
    for (const double error : report.errors) EXPECT_LT(error, 1e-4);
  });
  EXPECT_EQ(message, "no error");
  EXPECT_EQ(std::filesystem::exists(file), message == "no error");
  std::filesystem::remove(file);
}

const DynamicAxes kBatch = {{"input_0", {{0, "batch"}}}};
const DynamicAxes kAnyBatchAndTime = {{"input_0", {{0, "batch"}, {1, "time"}}}};
const DynamicAxes kImage = {{"input_0", {{0, "batch"}, {2, "height"}, {3, "width"}}}};

TEST(OnnxNetworks, AResidualNetwork) {
  expect_exported(Residual(), {torch::randn({2, 3, 32, 32})}, kImage);
}
TEST(OnnxNetworks, BatchNormsBecomePartOfTheConvolutionsBeforeThem) {
  torch::manual_seed(13);
  namespace nn = torch::nn;
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(4, 6, 3).bias(false)), nn::BatchNorm2d(6),
                     nn::Conv2d(nn::Conv2dOptions(6, 6, 3).groups(3)), nn::BatchNorm2d(6),
                     nn::ConvTranspose2d(nn::ConvTranspose2dOptions(6, 4, 3).groups(2)),
                     nn::BatchNorm2d(4));
  for (int i = 0; i < 20; ++i) net->forward(torch::randn({8, 4, 12, 12}) * 3 + 1);
  net->eval();
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("mezzo_fold_" + std::to_string(getpid()) + ".onnx");
  const ExportReport report =
      export_onnx(net, {torch::randn({2, 4, 12, 12})}, file,
                  judged({{"input_0", {{0, "batch"}, {2, "height"}, {3, "width"}}}}));
  EXPECT_FALSE(report.verified.empty());
  EXPECT_EQ(report.nodes, 3);
  std::filesystem::remove(file);
}

TEST(OnnxNetworks, AMobileNetworkWithSqueezeAndExcitation) {
  expect_exported(Mobile(), {torch::randn({2, 3, 32, 32})}, kImage);
}
TEST(OnnxNetworks, AnUNet) {
  expect_exported(UNet(), {torch::randn({1, 3, 32, 32})}, kImage);
}
TEST(OnnxNetworks, AVisionTransformer) {
  expect_exported(Vision(), {torch::randn({2, 3, 16, 16})}, kBatch);
}
TEST(OnnxNetworks, ShiftedWindows) {
  expect_exported(Windows(), {torch::randn({2, 8, 8, 16})}, kBatch);
}
TEST(OnnxNetworks, AnEncoderWithAMask) {
  expect_exported(
      Encoder(), {torch::randint(0, 30, {2, 6}), torch::ones({2, 6}, torch::kBool)},
      {{"input_0", {{0, "batch"}, {1, "time"}}}, {"input_1", {{0, "batch"}, {1, "time"}}}});
}
TEST(OnnxNetworks, CausalAttention) {
  expect_exported(Causal(), {torch::randint(0, 30, {2, 6})}, kAnyBatchAndTime);
}
TEST(OnnxNetworks, RecurrentLayers) {
  expect_exported(Recurring(), {torch::randn({2, 5, 4})}, kAnyBatchAndTime);
}
TEST(OnnxNetworks, AVariationalEncoder) {
  expect_exported(Variational(), {torch::randn({3, 12})}, kBatch);
}
TEST(OnnxNetworks, ADiffusionNetwork) {
  expect_exported(
      Diffusion(), {torch::randn({2, 4, 16, 16}), torch::randint(0, 100, {2})},
      {{"input_0", {{0, "batch"}, {2, "height"}, {3, "width"}}}, {"input_1", {{0, "batch"}}}});
}
TEST(OnnxNetworks, AGraphNetwork) {
  expect_exported(Graphs(), {torch::randn({7, 4}), torch::randint(0, 7, {2, 11})},
                  {{"input_1", {{1, "edges"}}}});
}
TEST(OnnxNetworks, SlicesAndWritesInPlace) {
  expect_exported(Slicing(), {torch::randn({4, 6, 5})}, kBatch);
}

TEST(OnnxNetworks, AConvolutionalNetworkWithLayerNorms) {
  expect_exported(Next(), {torch::randn({2, 3, 32, 32})}, kImage);
}
TEST(OnnxNetworks, AnEfficientNetwork) {
  expect_exported(Efficient(), {torch::randn({2, 3, 32, 32})}, kImage);
}
TEST(OnnxNetworks, AttentionOverEdges) {
  expect_exported(GraphAttention(), {torch::randn({7, 4}), torch::randint(0, 7, {2, 11})},
                  {{"input_0", {{0, "nodes"}}}, {"input_1", {{1, "edges"}}}});
}
TEST(OnnxNetworks, SequencesOfDifferentLengths) {
  Sentences net;
  const at::Tensor x = torch::randn({3, 6, 4}), lengths = torch::tensor({4, 6, 2});
  expect_exported(net, {x, lengths},
                  {{"input_0", {{0, "batch"}, {1, "time"}}}, {"input_1", {{0, "batch"}}}});
  // The longest sequence need not fill the tensor.
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("mezzo_packed_" + std::to_string(getpid()));
  export_onnx(net, {x, lengths}, file, judged({}));
  for (const at::Tensor& other : {torch::tensor({1, 3, 2}), torch::tensor({6, 6, 5})}) {
    const auto [a, b, c, d, e] = net(x, other);
    const double error = error_of_file(file, {"input_0", "input_1"}, {x, other},
                                       c10::ivalue::Tuple::create(a, b, c, d, e));
    EXPECT_LT(error, 1e-4) << other;
  }
  std::filesystem::remove(file);
}

TEST(OnnxNetworks, TheExamplesNetworks) {
  torch::nn::Sequential simple(torch::nn::Linear(16, 8), torch::nn::ReLU(),
                               torch::nn::Linear(8, 4));
  expect_exported(simple, {torch::randn({3, 16})}, kBatch);
  examples::DcganSizes sizes{16, 8, 4, 4, 1};
  expect_exported(examples::make_generator(sizes), {torch::randn({2, 8, 1, 1})}, kBatch);
  expect_exported(examples::make_discriminator(sizes), {torch::randn({2, 1, 16, 16})}, kBatch);
  for (const char* kind : {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}) {
    examples::LanguageModel model(examples::LanguageModelSizes{kind, 30, 8, 8, 2, 0.2, true});
    const auto memory = model->empty_memory(3, at::kCPU);
    DynamicAxes axes = {{"input_0", {{0, "time"}, {1, "columns"}}}};
    for (std::size_t i = 0; i < memory.size(); ++i)
      axes["input_" + std::to_string(i + 1)] = {{1, "columns"}};
    expect_exported(model, {torch::randint(0, 30, {5, 3}), c10::IValue(memory)}, axes);
  }
}

}  // namespace
}  // namespace mezzo::deploy
