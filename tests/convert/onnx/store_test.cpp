// External data: wherever tensors stand, and however their ranges are told.
#include "convert/onnx/store.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "convert/graph/graph.h"
#include "convert/onnx/document.h"
#include "convert/onnx/tensor.h"
#include "corpus.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class ExternalData : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("store");
    fs::create_directories(folder_ / "to");
    const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
    save(folder_ / "data.bin", std::string(reinterpret_cast<const char*>(values.data()), 32));
  }

  // Values of data.bin from `first` on.
  static Message outside(const std::string& name, Element element, std::int64_t count,
                         std::int64_t first, bool has_length = true) {
    Message tensor;
    tensor.add(field::tensor::kDims, static_cast<std::uint64_t>(count));
    tensor.add(field::tensor::kType, static_cast<std::uint64_t>(element));
    if (!name.empty()) tensor.add(field::tensor::kName, kept(name));
    tensor.add(field::tensor::kLocation, std::uint64_t{1});
    const auto entry = [&](const char* key, const std::string& value) {
      auto pair = std::make_unique<Message>();
      pair->add(field::pair::kKey, std::string_view(key));
      pair->add(field::pair::kValue, kept(value));
      tensor.add(field::tensor::kExternalData, std::move(pair));
    };
    entry("location", "data.bin");
    entry("offset", std::to_string(first * 4));
    if (has_length) {
      const auto size = static_cast<std::int64_t>(size_of(element));
      entry("length", std::to_string(count * size));
    }
    return tensor;
  }

  // Written elsewhere and read again.
  std::unique_ptr<Document> moved(const Message& made) const {
    save(folder_ / "in.onnx", made);
    Document document(folder_ / "in.onnx");
    store_model(document, folder_ / "to" / "out.onnx");
    return std::make_unique<Document>(folder_ / "to" / "out.onnx");
  }

  fs::path folder_;
};

TEST_F(ExternalData, EndsWhereTheShapeEndsWithoutALength) {
  GraphBuilder g;
  g.initializer(outside("w", Element::kFloat, 2, 1, false));
  g.node("Relu", {"w"}, {"y"}).output("y", Element::kFloat, {2});
  const auto document = moved(model(g.take()));
  const Graph graph(*document);
  const Tensor tensor =
      read_tensor(*document, *graph.value(graph.scope(0).names.at("w")).initializer);
  EXPECT_THAT(small_values(tensor, 8), testing::ElementsAre(2, 3));
}

TEST_F(ExternalData, IsOpenedOnceForAllDocumentsOfAFile) {
  GraphBuilder g;
  g.initializer(outside("w", Element::kFloat, 2, 1));
  g.node("Relu", {"w"}, {"y"}).output("y", Element::kFloat, {2});
  save(folder_ / "in.onnx", model(g.take()));
  const auto file = std::make_shared<ModelFile>(folder_ / "in.onnx");
  const auto values_in = [](Document& document) {
    const Graph graph(document);
    return small_values(
        read_tensor(document, *graph.value(graph.scope(0).names.at("w")).initializer), 8);
  };
  Document edited(file);
  edited.model().set(field::model::kIrVersion, std::uint64_t{3});
  EXPECT_THAT(values_in(edited), testing::ElementsAre(2, 3));
  fs::remove(folder_ / "in.onnx");
  fs::remove(folder_ / "data.bin");
  Document second(file);
  EXPECT_THAT(values_in(second), testing::ElementsAre(2, 3));
  EXPECT_TRUE(second.model().is_clean());
  EXPECT_FALSE(edited.model().is_clean());
}

TEST_F(ExternalData, ThatTensorsShareIsWrittenOnce) {
  GraphBuilder g;
  for (const char* name : {"a", "b"}) g.initializer(outside(name, Element::kFloat, 8, 0));
  g.node("Add", {"a", "b"}, {"y"}).output("y", Element::kFloat, {8});
  const auto document = moved(model(g.take()));
  EXPECT_EQ(fs::file_size(folder_ / "to" / "out.onnx.data"), 32U);
  EXPECT_EQ(Graph(*document).nodes.size(), 1U);
}

TEST_F(ExternalData, OfSparseTensorsDefaultsAndTrainingGoesAlong) {
  const auto sparse = [](Message values) {
    Message made;
    made.add(field::sparse_tensor::kValues, std::make_unique<Message>(std::move(values)));
    made.add(field::sparse_tensor::kIndices,
             std::make_unique<Message>(outside("", Element::kInt64, 1, 4)));
    made.add(3, std::uint64_t{8});
    return made;
  };
  GraphBuilder g;
  g.input("x", Element::kFloat, {8});
  g.add(field::graph::kSparseInitializer, sparse(outside("s", Element::kFloat, 1, 0)));
  g.node("Constant", {}, {"c"},
         attribute("sparse_value", field::attribute::kSparseTensor, 11,
                   sparse(outside("", Element::kFloat, 1, 1))));
  g.node("Add", {"x", "c"}, {"a"}).node("Add", {"a", "s"}, {"y"}).output("y", Element::kFloat, {8});
  Message made = model(g.take());
  Message function;
  function.add(field::function::kName, std::string_view("unused"));
  function.add(field::function::kAttributeProto, std::make_unique<Message>(tensor_attribute(
                                                     "value", outside("", Element::kFloat, 1, 2))));
  made.add(field::model::kFunctions, std::make_unique<Message>(std::move(function)));
  GraphBuilder step("step");
  step.initializer(outside("t", Element::kFloat, 1, 3));
  Message training;
  training.add(field::training::kAlgorithm, std::make_unique<Message>(step.take()));
  made.add(field::model::kTrainingInfo, std::make_unique<Message>(std::move(training)));
  const auto document = moved(made);
  EXPECT_EQ(document->bytes().find("data.bin"), std::string_view::npos)
      << "still named, in another folder";
  EXPECT_TRUE(has_external(*document));
}

// Neither onnx.load nor ONNX Runtime looks for parts of sparse tensors and training graphs there.
TEST_F(ExternalData, IsNotMadeOfSparseTensorsAndTraining) {
  constexpr std::int64_t kMany = 512;
  const std::vector<std::int64_t> places(kMany, 1);
  Message sparse;
  sparse.add(field::sparse_tensor::kValues,
             std::make_unique<Message>(floats("s", {kMany}, std::vector<float>(kMany, 1))));
  sparse.add(field::sparse_tensor::kIndices,
             std::make_unique<Message>(tensor("", Element::kInt64, {kMany}, places)));
  sparse.add(3, static_cast<std::uint64_t>(kMany));
  GraphBuilder g;
  g.input("x", Element::kFloat, {8}).initializer(outside("w", Element::kFloat, 8, 0));
  g.node("Constant", {}, {"c"},
         attribute("sparse_value", field::attribute::kSparseTensor, 11, sparse.clone()));
  g.add(field::graph::kSparseInitializer, std::move(sparse));
  g.weight("v", std::vector<float>(kMany, 1), {kMany});
  g.node("Add", {"x", "w"}, {"y"}).output("y", Element::kFloat, {8});
  Message made = model(g.take());
  GraphBuilder step("step");
  step.weight("t", std::vector<float>(kMany, 1), {kMany});
  Message training;
  training.add(field::training::kAlgorithm, std::make_unique<Message>(step.take()));
  made.add(field::model::kTrainingInfo, std::make_unique<Message>(std::move(training)));
  moved(made);
  EXPECT_EQ(fs::file_size(folder_ / "to" / "out.onnx.data"), 4096U + kMany * 4)
      << "the two weights and nothing else";
}

}  // namespace
}  // namespace mezzo::convert
