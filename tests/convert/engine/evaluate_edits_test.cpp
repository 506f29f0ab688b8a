// Edits of a model before anything is decided leave its numbers what they were: raising it
// to another opset, and folding batch normalizations.
#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "convert/judge/metrics.h"
#include "convert/prepare/fold_batch_norm.h"
#include "convert/prepare/opset.h"
#include "evaluator.h"
#include "networks.h"
#include "old_models.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAreArray;

Array floats_array(const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
  return array(Element::kFloat, dims, values);
}

TEST(EditedModels, OldFormsGiveWhatTheyGave) {
  for (const int target : {7, 9, 10, 12, 13, 18, 22}) {
    for (OldModel& old : old_models()) {
      if (target < 9 && old.name == "UpsampleWide") continue;  // the evaluator wants an input
      if (target < 9 && old.opset >= 8) continue;              // a Scan
      SCOPED_TRACE(old.name + " to " + std::to_string(target));
      Document document(bytes_of(model(std::move(old.graph), old.opset, 4)));
      ASSERT_EQ(raise_opset(document, target), "");
      Document raised(bytes_of(document.model()));
      const Graph graph(raised);
      const auto outputs =
          Evaluation(library(), raised, graph).run({{"x", floats_array(old.dims, old.x)}});
      ASSERT_EQ(outputs.size(), 1U);
      const std::vector<double> values = outputs[0]->tensor.values();
      EXPECT_THAT(std::vector<float>(values.begin(), values.end()), ElementsAreArray(old.y));
    }
  }
}

TEST(EditedModels, ResizeByTheNearestGivesWhatItGave) {
  const std::vector<std::vector<float>> all{
      {1, 1, 2, 2}, {1, 1, 3, 1.5F}, {1, 1, 0.5F, 0.75F}, {1, 1, 2.5F, 1}};
  for (std::size_t i = 0; i < 2 * all.size(); ++i) {
    const std::vector<float>& scales = all[i / 2];
    const char* rounding = i % 2 == 0 ? "floor" : "round_prefer_floor";
    const auto made = [&] {
      GraphBuilder g;
      g.input("x", Element::kFloat, {1, 1, 4, 4}).weight("none", {}, {0});
      g.weight("scales", scales, {4});
      g.node("Resize", {"x", "none", "scales"}, {"y"},
             attribute("coordinate_transformation_mode", "tf_half_pixel_for_nn"),
             attribute("nearest_mode", rounding));
      return model(g.output("y", Element::kFloat, {1, 1, -1, -1}).take(), 11);
    };
    std::vector<float> x(16);
    std::iota(x.begin(), x.end(), 0.0F);
    const Sample sample{{"x", floats_array({1, 1, 4, 4}, x)}};
    Document document(bytes_of(made()));
    ASSERT_EQ(raise_opset(document, 13), "");
    const Message raised = Message::parse(document.keep(bytes_of(document.model())));
    EXPECT_EQ(evaluated(made(), sample)[0].values(), evaluated(raised, sample)[0].values());
  }
}

// Numbers that a seed gives.
std::vector<float> drawn(std::size_t count, unsigned seed, float least, float most) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(least, most);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

GraphBuilder& normalized(GraphBuilder& g, const std::string& in, const std::string& out,
                         std::int64_t channels, unsigned seed) {
  const auto count = static_cast<std::size_t>(channels);
  g.weight(out + ".scale", drawn(count, seed, 0.5F, 2), {channels});
  g.weight(out + ".bias", drawn(count, seed + 1, -1, 1), {channels});
  g.weight(out + ".mean", drawn(count, seed + 2, -1, 1), {channels});
  g.weight(out + ".variance", drawn(count, seed + 3, 0.1F, 4), {channels});
  return g.node("BatchNormalization",
                {in, out + ".scale", out + ".bias", out + ".mean", out + ".variance"}, {out},
                float_attribute("epsilon", 1e-3F));
}

// Convolutions with and without groups, a transposed one, and a product, each normalized.
Message network() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {2, 4, 6, 6}).weight("a", drawn(6 * 2 * 9, 1, -1, 1), {6, 2, 3, 3});
  g.weight("b", drawn(6, 2, -1, 1), {6}).weight("t", drawn(6 * 2 * 4, 3, -1, 1), {6, 2, 2, 2});
  g.weight("f", drawn(std::size_t{6} * 4 * 25, 4, -1, 1), {6, 100});
  g.weight("c", drawn(6, 5, -1, 1), {1, 6});
  g.node("Conv", {"x", "a", "b"}, {"c1"}, attribute("group", 2));
  normalized(g, "c1", "n1", 6, 10).node("Relu", {"n1"}, {"r"});
  g.node("ConvTranspose", {"r", "t"}, {"c2"}, attribute("group", 2));
  normalized(g, "c2", "n2", 4, 20).node("Flatten", {"n2"}, {"flat"});
  g.node("Gemm", {"flat", "f", "c"}, {"c3"}, attribute("transB", 1), float_attribute("beta", 0.5F),
         float_attribute("alpha", 0.25F));
  normalized(g, "c3", "y", 6, 30);
  return model(g.output("y", Element::kFloat, {2, 6}).take());
}

TEST(EditedModels, FoldedBatchNormalizationsGiveWhatTheyGave) {
  const Sample sample{{"x", floats_array({2, 4, 6, 6}, drawn(2 * 4 * 36, 7, -1, 1))}};
  Document document(bytes_of(network()));
  for (const BatchNormFold& norm : fold_batch_norms(document)) EXPECT_EQ(norm.why, "");
  const Message folded = Message::parse(document.keep(bytes_of(document.model())));
  const Array before = evaluated(network(), sample)[0];
  const OutputError error = compare_outputs("y", before, evaluated(folded, sample)[0]);
  EXPECT_TRUE(error.finite);
  EXPECT_LT(error.relative_to_range, 2e-6);
}

TEST(EditedModels, AFoldedResNetGivesWhatItGave) {
  const std::vector<std::int64_t> dims{1, 3, 64, 64};
  const Sample sample{{"data", floats_array(dims, drawn(std::size_t{3} * 64 * 64, 11, -1, 1))}};
  Document document(bytes_of(resnet18()));
  fold_batch_norms(document);
  const Message folded = Message::parse(document.keep(bytes_of(document.model())));
  const Array before = evaluated(resnet18(), sample)[0];
  EXPECT_LT(compare_outputs("y", before, evaluated(folded, sample)[0]).relative_to_range, 1e-4);
}

}  // namespace
}  // namespace mezzo::convert
