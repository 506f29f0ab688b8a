// The gain of a newer opset: counted on what both opsets have, and without measurements.
#include <gmock/gmock.h>

#include "builder.h"
#include "convert/choose_opset.h"
#include "convert/graph/graph.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BetterOpset : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("better_opset");
    options_.cast_optional_params = true;
    options_.verify = "none";
  }

  Report convert(const Message& made) {
    save(in(), made);
    return convert_model(in(), folder_ / "out.onnx", options_).report;
  }
  fs::path in() const { return folder_ / "in.onnx"; }

  fs::path folder_;
  Options options_;
};

Message around_softplus() {
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"m"}).node("Softplus", {"m"}, {"s"});
  return model(g.node("MatMul", {"s", "w"}, {"y"}).output("y").take(), 17);
}

TEST_F(BetterOpset, IsSaid) {
  options_.target_dtype = "bfloat16";
  options_.target_dtype_ops = std::vector<std::string>{"+Softplus"};
  const Report kept = convert(around_softplus());
  EXPECT_EQ(kept.better_opset, 22);
  EXPECT_EQ(kept.low_in_better_opset, 1);
  EXPECT_THAT(kept.to_text(),
              HasSubstr("opset 22 (Options::opset 'auto') would convert 1 more type variables\n"));
  options_.opset = "auto";
  EXPECT_EQ(convert(around_softplus()).better_opset, 0);
  options_.opset = "keep";
  options_.target_dtype = "float16";
  EXPECT_EQ(convert(around_softplus()).better_opset, 0);
}

TEST_F(BetterOpset, IsOneThatGivesAnOperatorItsFirstTypeVariable) {
  GraphBuilder g;
  g.input("x").weight("scale", {0.1F}, {}).weight("zero", {0}, {}).weight("two", {2}, {});
  g.initializer(tensor<std::uint8_t>("wq", Element::kUint8, {2, 2}, {1, 2, 3, 4}));
  g.node("DequantizeLinear", {"wq", "scale"}, {"wd"}).node("MatMul", {"x", "wd"}, {"m"});
  // Stays float32 in every opset that is tried, so that the search goes on.
  g.node("Range", {"zero", "two", "two"}, {"r"}).node("Add", {"m", "r"}, {"y"});
  options_.opset = "auto";
  convert(model(g.output("y").take(), 13));
  Document document(folder_ / "out.onnx");
  EXPECT_EQ(Graph(document).scope(0).opset(""), 20);
}

// From opset 13 on a Softmax over several axes stands between a Flatten and a Reshape.
TEST_F(BetterOpset, IsNotOneThatOnlyNeedsMoreNodes) {
  const std::vector<std::int64_t> cube{2, 2, 2};
  GraphBuilder g;
  g.input("x", Element::kFloat, cube).weight("w");
  g.initializer(tensor<std::int64_t>("axis", Element::kInt64, {}, {0}));
  g.node("CumSum", {"x", "axis"}, {"v0"});
  for (int i = 0; i < 12; ++i) {
    const std::string at = std::to_string(i);
    g.node("MatMul", {"v" + at, "w"}, {"m" + at});
    g.node("Softmax", {"m" + at}, {"v" + std::to_string(i + 1)}, attribute("axis", 1));
  }
  const Message made = model(g.output("v12", Element::kFloat, cube).take(), 11);
  for (const bool sums_low : {false, true}) {
    if (sums_low) options_.target_dtype_ops = std::vector<std::string>{"+CumSum"};
    options_.opset = "keep";
    const Report kept = convert(made);
    EXPECT_EQ(kept.better_opset, sums_low ? 14 : 0);
    EXPECT_LE(kept.low_in_better_opset, 1);
    options_.opset = "auto";
    EXPECT_EQ(convert(made).opset_after, sums_low ? 14 : 11);
  }
}

// No opset gives what the runtime's kernels refuse.
TEST_F(BetterOpset, IsNotLookedForWhereARuntimeRefuses) {
  options_.profile = "ort";
  options_.target_dtype = "bfloat16";
  EXPECT_EQ(convert(around_softplus()).better_opset, 0);
}

// Below opset 13 nothing takes bfloat16, so that no weight is read.
TEST_F(BetterOpset, DoesNotFailOverWhatTheModelsOwnOpsetDoesNotRead) {
  GraphBuilder g;
  g.input("x").initializer(tensor<float>("w", Element::kFloat, {2, 2}, {1}));
  const Message made = model(g.node("MatMul", {"x", "w"}, {"y"}).output("y").take(), 12);
  options_.target_dtype = "bfloat16";
  const Report report = convert(made);
  EXPECT_TRUE(report.unchanged);
  EXPECT_EQ(report.better_opset, 0);
}

}  // namespace
}  // namespace mezzo::convert
