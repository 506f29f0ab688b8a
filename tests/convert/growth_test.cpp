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

  // Of this process: others may be busy.
  double seconds_of(const Message& made) {
    save(folder_ / "in.onnx", made);
    const std::clock_t start = std::clock();
    convert_model(folder_ / "in.onnx", folder_ / "out.onnx", options_);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  }

  fs::path folder_;
  Options options_;
};

TEST_F(Growth, OfNodesWithoutOutputs) {
  GraphBuilder g;
  g.input("x").weight("w").node("MatMul", {"x", "w"}, {"y"}).output("y");
  for (int i = 0; i < 100'000; ++i) g.node("Relu", {"y"}, {});
  EXPECT_LT(seconds_of(model(g.take())), 5);
}

TEST_F(Growth, OfWeightsThatOneNodeReads) {
  options_.weights_only = true;
  const std::vector<float> values(32, 1);
  GraphBuilder g;
  std::vector<std::string> names;
  for (int i = 0; i < 100'000; ++i) {
    names.push_back("w" + std::to_string(i));
    g.weight(names.back(), values, {32});
  }
  g.node("Concat", names, {"y"}, attribute("axis", std::int64_t{0}))
      .output("y", Element::kFloat, {3'200'000});
  EXPECT_LT(seconds_of(model(g.take())), 5);
}

}  // namespace
}  // namespace mezzo::convert
