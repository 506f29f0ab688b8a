// Time grows with the size of a model, whatever stands in it.
#include <gtest/gtest.h>

#include <ctime>

#include "builder.h"
#include "corpus.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class Growth : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("growth");
    options_.verify = "none";
  }

  // Counts this process; caches and cores that others use, and sanitizers, still make it more.
  double seconds_of(const Message& made) {
    save(folder_ / "in.onnx", made);
    const std::clock_t start = std::clock();
    nodes_ = convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_).report.nodes;
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  }

  // Four times as many take four times as long; where each is compared with all, sixteen times.
  template <typename Make>
  void expect_linear(int count, const Make& make) {
    const double few = seconds_of(make(count / 4));
    const double many = seconds_of(make(count));
    EXPECT_LT(many, 8 * few + 0.5) << "seconds, and " << few << " for a quarter";
  }

  fs::path folder_;
  Options options_;
  std::int64_t nodes_ = 0;  // of the last model, as it was written
};

TEST_F(Growth, OfNodesWithoutOutputs) {
  expect_linear(100'000, [](int count) {
    GraphBuilder g;
    g.input("x").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
    for (int i = 0; i < count; ++i) g.node("Relu", {"y"}, {});
    return model(g.take());
  });
}

TEST_F(Growth, OfWeightsThatOneNodeReads) {
  options_.weights_only = true;
  expect_linear(100'000, [](int count) {
    const std::vector<float> values(32, 1);
    GraphBuilder g;
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
      names.push_back("w" + std::to_string(i));
      g.weight(names.back(), values, {32});
    }
    g.node("Concat", names, {"y"}, attribute("axis", std::int64_t{0}));
    return model(g.output("y", Element::kFloat, {32 * std::int64_t{count}}).take());
  });
}

TEST_F(Growth, OfBatchNormalizationsThatAreFolded) {
  options_.fold_batch_norm = true;
  expect_linear(20'000, [](int count) {
    const std::vector<std::int64_t> image{1, 2, 1, 1};
    GraphBuilder g;
    g.input("x", Element::kFloat, image).weight("shared", {1, 0, 0, 1}, {2, 2, 1, 1});
    std::string in = "x";
    for (int i = 0; i < count; ++i) {
      const std::string n = std::to_string(i);
      const std::string weight = i % 2 == 0 ? "w" + n : "shared";
      if (i % 2 == 0) g.weight(weight, {1, 0, 0, 1}, {2, 2, 1, 1});
      for (const char* name : {"scale", "bias", "mean", "variance"})
        g.weight(name + n, {2, 1}, {2});
      g.node("Conv", {in, weight}, {"c" + n});
      g.node("BatchNormalization", {"c" + n, "scale" + n, "bias" + n, "mean" + n, "variance" + n},
             {"y" + n});
      in = "y" + n;
    }
    return model(g.output(in, Element::kFloat, image).take());
  });
  EXPECT_EQ(nodes_, 20'000);
}

}  // namespace
}  // namespace mezzo::convert
