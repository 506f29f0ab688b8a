// Layers of transformers, whole as LibTorch computes them without gradients, and their attention.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "messages.h"
#include "mezzo/deploy.h"
#include "run_file.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

class OnnxTransformers : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(7); }
  void TearDown() override { std::filesystem::remove(file_); }

  /// Exports `forward(self, x)` for any batch and time, and runs it at other sizes.
  void expect_exported(const std::string& body, const Tensors& weights, const at::Tensor& x,
                       int opset = 17) const {
    torch::jit::Module module =
        scripted("def forward(self, x: Tensor):\n  return " + body + "\n", weights);
    OnnxOptions options = judged_options();
    options.opset = opset;
    options.dynamic_axes = {{"x", {{0, "batch"}, {1, "time"}}}};
    ASSERT_EQ(message_of([&] { export_onnx(module, {x}, file_, options); }), "no error") << body;
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes[0] += 2;
    sizes[1] += 5;
    const at::Tensor other = torch::randn(sizes);
    const at::NoGradGuard no_grad;
    EXPECT_LT(error_of_file(file_, {"x"}, {other}, module.forward({other})), 1e-5) << body;
  }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_transformers_" + std::to_string(getpid()) + ".onnx");
};

Tensors weights_of_layer() {
  return {
      {"qkv", torch::randn({24, 8})}, {"qkv_b", torch::randn({24})}, {"proj", torch::randn({8, 8})},
      {"proj_b", torch::randn({8})},  {"n1", torch::randn({8})},     {"n1_b", torch::randn({8})},
      {"n2", torch::randn({8})},      {"n2_b", torch::randn({8})},   {"f1", torch::randn({12, 8})},
      {"f1_b", torch::randn({12})},   {"f2", torch::randn({8, 12})}, {"f2_b", torch::randn({8})}};
}

TEST_F(OnnxTransformers, EncoderLayersOfOneOperator) {
  const std::string padding =
      "(torch.arange(x.size(1)) >= x.size(1) - 2).unsqueeze(0).repeat([x.size(0), 1])";
  const std::string future = "torch.ones([x.size(1), x.size(1)]).triu(1) > 0";
  for (const int opset : {17, 20}) {
    for (const std::string& rest :
         {std::string("True, True, 1e-5"), std::string("False, False, 1e-5"),
          std::string("True, False, 1e-5")}) {
      for (const std::string& mask : {std::string(), ", " + padding + ", 1", ", " + future + ", 0"})
        expect_exported(
            "torch._transformer_encoder_layer_fwd(x, 8, 2, self.qkv, self.qkv_b, self.proj, "
            "self.proj_b, " +
                rest +
                ", self.n1, self.n1_b, self.n2, self.n2_b, self.f1, self.f1_b, self.f2, self.f2_b" +
                mask + ")",
            weights_of_layer(), torch::randn({2, 5, 8}), opset);
    }
  }
}

TEST_F(OnnxTransformers, SelfAttentionOfOneOperator) {
  for (const char* rest : {"None, False", "None, True", "None, True, False"})
    expect_exported(
        "torch._native_multi_head_attention(x, x, x, 8, 2, self.qkv, self.qkv_b, self.proj, "
        "self.proj_b, " +
            std::string(rest) + ")" + (std::string(rest) == "None, False" ? "[0]" : ""),
        weights_of_layer(), torch::randn({2, 5, 8}));
}

/// Queries of eight heads beside keys and values of two.
TEST_F(OnnxTransformers, GroupsOfQueriesShareKeys) {
  expect_exported(
      "torch.scaled_dot_product_attention(x.reshape([x.size(0), x.size(1), 8, 2]).transpose(1, 2), "
      "x[:, :, :4].reshape([x.size(0), x.size(1), 2, 2]).transpose(1, 2), "
      "x[:, :, 4:8].reshape([x.size(0), x.size(1), 2, 2]).transpose(1, 2), is_causal=True, "
      "enable_gqa=True)",
      {}, torch::randn({2, 5, 16}));
}

}  // namespace
}  // namespace mezzo::deploy
