// ONNX Runtime's own operators, judged by it: descriptions that it does not share give models that
// it does not load.
#include <gmock/gmock.h>

#include "builder.h"
#include "cases.h"
#include "convert/engine/ort.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

const std::vector<std::int64_t> kTokens{1, 4, 8};

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 7) / 8 - 0.375F;
  return values;
}

struct Model {
  const char* name;
  Message graph;
};

GraphBuilder start() {
  GraphBuilder g;
  g.input("x", Element::kFloat, kTokens);
  return g;
}

GraphBuilder& microsoft(GraphBuilder& g) {
  return g.in_domain("com.microsoft");
}

Message done(GraphBuilder& g, const std::vector<std::int64_t>& dims = kTokens) {
  return g.output("y", Element::kFloat, dims).take();
}

std::vector<Model> models() {
  std::vector<Model> all;
  {
    GraphBuilder g = start();
    g.weight("w", ramp(64), {8, 8}).weight("b", ramp(8), {8});
    microsoft(g).node("FusedMatMul", {"x", "w"}, {"p"}, attribute("transB", 1));
    microsoft(g).node("BiasGelu", {"p", "b"}, {"q"});
    microsoft(g).node("FastGelu", {"q", "b"}, {"r"});
    microsoft(g).node("TransposeMatMul", {"r", "w"}, {"s"});
    microsoft(g).node("QuickGelu", {"s"}, {"t"});
    microsoft(g).node("Gelu", {"t"}, {"y"});
    all.push_back({"products and activations", done(g)});
  }
  {
    GraphBuilder g = start();
    g.weight("w", ramp(64), {8, 8}).weight("b", ramp(8), {8}).weight("gamma", ramp(8), {8});
    g.node("MatMul", {"x", "w"}, {"p"});
    microsoft(g).node("SkipLayerNormalization", {"x", "p", "gamma", "b", "b"},
                      {"q", "", "", "sum"});
    g.node("MatMul", {"q", "w"}, {"r"});
    microsoft(g).node("SkipSimplifiedLayerNormalization", {"r", "sum", "gamma"}, {"s"});
    g.node("SimplifiedLayerNormalization", {"s", "gamma"}, {"t"});
    g.node("MatMul", {"t", "w"}, {"y"});
    all.push_back({"normalisations", done(g)});
  }
  {
    GraphBuilder g = start();
    g.weight("w", ramp(192), {8, 24}).weight("b", ramp(24), {24}).weight("bias", ramp(24), {24});
    microsoft(g).node("Attention", {"x", "w", "b"}, {"p"}, attribute("num_heads", 2));
    microsoft(g).node("MultiHeadAttention", {"p", "p", "p", "bias"}, {"y"},
                      attribute("num_heads", 2));
    all.push_back({"attention", done(g)});
  }
  {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 2, 4, 4}).weight("w", ramp(4), {2, 2, 1, 1});
    microsoft(g).node("FusedConv", {"x", "w"}, {"y"}, attribute("activation", "Relu"));
    all.push_back({"convolution", done(g, {1, 2, 4, 4})});
  }
  {
    GraphBuilder g;
    g.input("x", Element::kFloat, {2, 4}).weight("w", ramp(16), {4, 4}).weight("b", ramp(4), {4});
    microsoft(g).node("FusedGemm", {"x", "w", "b"}, {"y"}, attribute("activation", "Relu"));
    all.push_back({"gemm", done(g, {2, 4})});
  }
  {
    GraphBuilder g;
    g.input("ids", Element::kInt32, {1, 4}).weight("words", ramp(80), {10, 8});
    g.weight("places", ramp(64), {8, 8})
        .weight("gamma", ramp(8), {8})
        .weight("w", ramp(64), {8, 8});
    microsoft(g).node("EmbedLayerNormalization",
                      {"ids", "", "words", "places", "", "gamma", "gamma"}, {"p", "mask"});
    g.node("MatMul", {"p", "w"}, {"y"});
    all.push_back({"embedding", done(g)});
  }
  {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 2, 4, 4}).input("places", Element::kInt64, {1, 4});
    g.weight("cos", ramp(16), {8, 2}).weight("sin", ramp(16), {8, 2});
    g.node("MatMul", {"x", "x"}, {"p"});
    microsoft(g).node("RotaryEmbedding", {"p", "places", "cos", "sin"}, {"q"});
    g.node("MatMul", {"q", "q"}, {"y"});
    all.push_back({"rotary embedding", done(g, {1, 2, 4, 4})});
  }
  {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 4, 4, 4});
    g.node("MatMul", {"x", "x"}, {"p"});
    microsoft(g).node("Trilu", {"p"}, {"r"});
    g.node("MatMul", {"r", "x"}, {"y"});
    all.push_back({"triangle", done(g, {1, 4, 4, 4})});
  }
  return all;
}

TEST(OnnxRuntimesOwnOperators, AreLoadedAndAgreeAfterConversion) {
  const fs::path folder = scratch_folder("ort_custom");
  for (Model& each : models()) {
    Message made = model(std::move(each.graph), 14);
    made.add(field::model::kOpsetImport,
             std::make_unique<Message>(opset_import(1, "com.microsoft")));
    save(folder / "in.onnx", made);
    Options options;
    options.profile = "ort";
    options.cast_optional_params = true;
    options.verify = "compare";
    options.onnxruntime = MEZZO_ONNXRUNTIME;
    for (const bool all_low : {false, true}) {
      // Whatever may go low goes low.
      if (all_low) options.included_names = {"*"};
      try {
        const Result result = convert_model(folder / "in.onnx", folder / "out.onnx", options);
        EXPECT_GT(result.report.low_nodes, 0) << each.name;
        EXPECT_NE(result.report.verified.find("ONNX Runtime"), std::string::npos)
            << result.report.verified;
      } catch (const std::exception& error) {
        ADD_FAILURE() << each.name << (all_low ? ", all low: " : ": ") << error.what();
      }
    }
  }
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace mezzo::convert
