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
  void TearDown() override { fs::remove_all(folder_.parent_path()); }

  // Of this process; caches and cores that others use, and sanitizers, still make it more.
  double seconds_of(const Message& made) {
    save(folder_ / "in.onnx", made);
    const std::clock_t start = std::clock();
    convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  }

  // Four times as many take four times as long; where each is compared with all, sixteen times.
  template <typename Make>
  void expect_linear(const Make& make) {
    constexpr int kMany = 100'000;
    const double few = seconds_of(make(kMany / 4));
    const double many = seconds_of(make(kMany));
    EXPECT_LT(many, 8 * few + 0.5) << "seconds, and " << few << " for a quarter";
  }

  fs::path folder_;
  Options options_;
};

TEST_F(Growth, OfNodesWithoutOutputs) {
  expect_linear([](int count) {
    GraphBuilder g;
    g.input("x").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
    for (int i = 0; i < count; ++i) g.node("Relu", {"y"}, {});
    return model(g.take());
  });
}

TEST_F(Growth, OfWeightsThatOneNodeReads) {
  options_.weights_only = true;
  expect_linear([](int count) {
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

}  // namespace
}  // namespace mezzo::convert
