// Operators keep to the kernels that ONNX Runtime has.
#include <gmock/gmock.h>

#include "convert/decide/profile.h"
#include "corpus.h"
#include "kernel_models.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Kernels : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("kernels");
    options_.verify = "none";
  }

  Plan plan(const Message& made) {
    save(folder_ / "in.onnx", made);
    return plan_model(folder_ / "in.onnx", options_);
  }

  // The decisions about one operator of the model, by type variable.
  std::map<std::string, Decision> decided(const Message& made, const std::string& op) {
    std::map<std::string, Decision> found;
    for (const Decision& decision : plan(made).decisions) {
      if (decision.op == op) found[decision.variable] = decision;
    }
    return found;
  }

  fs::path folder_;
  Options options_;
};

Message rms_norm_between_products(int opset = 23) {
  GraphBuilder g;
  g.input("x").weight("w").weight("scale", {1, 2}, {2}).output("y");
  g.node("MatMul", {"x", "w"}, {"a"}).node("RMSNormalization", {"a", "scale"}, {"n"});
  return model(g.node("MatMul", {"n", "w"}, {"y"}).take(), opset, 10);
}

TEST_F(Kernels, AnRmsNormAndItsScaleHaveOneType) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    options_.target_dtype = dtype;
    for (const char* profile : {"portable", "spec", "ort-cuda", "trt", "openvino"}) {
      options_.profile = profile;
      auto between = decided(rms_norm_between_products(), "RMSNormalization");
      EXPECT_EQ(between["T"].low, between["V"].low) << dtype << ' ' << profile;
      GraphBuilder alone;
      alone.input("x").weight("w").weight("scale", {1, 2}, {2}).output("y");
      alone.node("RMSNormalization", {"x", "scale"}, {"n"}).node("MatMul", {"n", "w"}, {"y"});
      auto first = decided(model(alone.take(), 23, 10), "RMSNormalization");
      EXPECT_EQ(first["T"].low, first["V"].low) << dtype << ' ' << profile;
    }
  }
}

TEST_F(Kernels, VariablesThatNoKernelKnowsApartAreOneWhateverIsExcluded) {
  int pairs = 0;
  for (const KernelGap& gap : kernel_gaps()) {
    if (gap.with.empty() || gap.op == "Resize") continue;
    ++pairs;
    const std::string op(gap.op);
    options_.choose = [&](const Decision& decision) -> std::optional<bool> {
      if (decision.op == op && decision.variable == gap.with) return false;
      return std::nullopt;
    };
    auto asked = decided(kernel_model(gap, {}), op);
    EXPECT_FALSE(asked[std::string(gap.with)].low) << op;
    EXPECT_FALSE(asked[std::string(gap.variable)].low) << op << gap.since << ' ' << gap.variable;
  }
  EXPECT_GT(pairs, 10);
}

// It may be low only where the image is, and is a place, which stays float32.
TEST_F(Kernels, TheRegionOfAResizeStaysFloatBesideALowImage) {
  for (const KernelGap& gap : kernel_gaps()) {
    if (gap.op != "Resize") continue;
    options_.choose = [](const Decision& decision) -> std::optional<bool> {
      if (decision.op == "Resize" && decision.variable == "T1") return true;
      return std::nullopt;
    };
    auto resized = decided(kernel_model(gap, {}), "Resize");
    EXPECT_TRUE(resized["T1"].low) << gap.since;
    EXPECT_FALSE(resized["T2"].low) << gap.since;
  }
}

TEST_F(Kernels, WhatHasNoKernelStaysFloatWhereOnnxRuntimeRunsIt) {
  int alone = 0;
  for (const KernelGap& gap : kernel_gaps()) {
    if (!gap.with.empty()) continue;
    ++alone;
    const std::string op = domain_and_name(gap.op).second;
    const std::string variable(gap.variable);
    options_.io = "low";
    for (const char* profile : {"portable", "ort", "ort-cuda"}) {
      options_.profile = profile;
      auto decisions = decided(kernel_model(gap, {}), op);
      EXPECT_FALSE(decisions[variable].low) << profile << ' ' << gap.op << gap.since;
      // Reports list no operators of machine learning's own domain.
      const std::string rule = gap.is_valid ? "schema" : "";
      EXPECT_EQ(decisions[variable].rule, rule) << gap.op;
    }
    options_.profile = "spec";
    options_.choose = [&](const Decision&) -> std::optional<bool> { return true; };
    EXPECT_EQ(decided(kernel_model(gap, {}), op)[variable].low, gap.is_valid) << gap.op;
    options_.choose = {};
  }
  EXPECT_GT(alone, 10);
}

TEST_F(Kernels, ReductionsOfScatteredValuesStayFloatAndCopiesDoNot) {
  for (const char* reduction : {"none", "add"}) {
    const bool is_copy = std::string_view(reduction) == "none";
    GraphBuilder g;
    g.input("x").weight("w").output("y");
    g.initializer(tensor<std::int64_t>("places", Element::kInt64, {2, 1}, {1, 0}));
    g.node("MatMul", {"x", "w"}, {"a"});
    g.node("ScatterND", {"a", "places", "a"}, {"s"}, attribute("reduction", reduction));
    const Message made = model(g.node("MatMul", {"s", "w"}, {"y"}).take(), 18);
    auto scattered = decided(made, "ScatterND");
    EXPECT_EQ(scattered["T"].low, is_copy) << reduction;
    if (!is_copy) {
      EXPECT_THAT(scattered["T"].why, HasSubstr("no 16-bit ScatterND with reduction=add"));
    }
    EXPECT_TRUE(decided(made, "MatMul")["T"].low);
  }
}

}  // namespace
}  // namespace mezzo::convert
