// MXNet's tutorial on a real network.
#include "networks.h"

#include <gmock/gmock.h>

#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

// target_dtype_ops = ['Convolution'], fp32_ops = ['softmax', 'FullyConnected'],
// cast_optional_params = True: "conv weights are fp16, the last bias is fp32".
TEST(Tutorial, OnResNet18ConvolutionWeightsAreHalfAndTheLastBiasIsFloat) {
  const fs::path folder = scratch_folder("tutorial");
  save(folder / "resnet18.onnx", resnet18());
  Options options;
  options.target_dtype_ops = std::vector<std::string>{"Conv"};
  options.fp32_ops = std::vector<std::string>{"Softmax", "Gemm"};
  options.cast_optional_params = true;
  options.verify = "none";
  const Report report =
      convert_model(folder / "resnet18.onnx", folder / "half.onnx", options).report;
  int convolutions = 0;
  for (const auto& [name, type] : weight_types(folder / "half.onnx")) {
    const bool is_convolution =
        name.find("conv") != std::string::npos || name.find("down.0") != std::string::npos;
    if (!is_convolution) continue;
    EXPECT_EQ(type, "float16") << name;
    ++convolutions;
  }
  EXPECT_EQ(convolutions, 20);
  const auto types = weight_types(folder / "half.onnx");
  EXPECT_EQ(types.at("fc.bias"), "float32");
  EXPECT_EQ(types.at("fc.weight"), "float32");
  EXPECT_EQ(types.at("conv1.weight"), "float16");
  EXPECT_LT(report.bytes_after, report.bytes_before * 6 / 10);
  fs::remove_all(folder.parent_path());
}

TEST(Tutorial, WithDefaultListsEverythingHeavyIsLow) {
  const fs::path folder = scratch_folder("tutorial");
  save(folder / "resnet18.onnx", resnet18());
  Options options;
  options.cast_optional_params = true;
  options.verify = "none";
  const Report report =
      convert_model(folder / "resnet18.onnx", folder / "half.onnx", options).report;
  EXPECT_EQ(report.heavy_nodes, 21);
  EXPECT_EQ(report.heavy_low_nodes, 21);
  fs::remove_all(folder.parent_path());
}

TEST(Tutorial, EveryBatchNormalizationOfResNet18MayBeFolded) {
  const fs::path folder = scratch_folder("tutorial");
  save(folder / "resnet18.onnx", resnet18());
  Options options;
  options.verify = "none";
  const Report plain =
      convert_model(folder / "resnet18.onnx", folder / "half.onnx", options).report;
  options.fold_batch_norm = true;
  const Report report =
      convert_model(folder / "resnet18.onnx", folder / "folded.onnx", options).report;
  EXPECT_EQ(report.batch_norms.size(), 20U);
  for (const BatchNormFold& norm : report.batch_norms) EXPECT_EQ(norm.why, "") << norm.node;
  EXPECT_EQ(report.nodes, plain.nodes - 20);
  EXPECT_EQ(report.heavy_low_nodes, 21);
  EXPECT_LE(report.casts.size(), plain.casts.size());
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace mezzo::convert
