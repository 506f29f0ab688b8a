// The models that judges run.
#include "convert/judge/judge.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "convert/onnx/document.h"
#include "corpus.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class NoModel final : public LoadedModel {
 public:
  std::vector<Array> run(const Sample&) const override { return {}; }
  const std::vector<std::string>& inputs() const override { return names_; }
  const std::vector<std::string>& outputs() const override { return names_; }

 private:
  std::vector<std::string> names_;
};

// Runs nothing and counts the Casts of what it opens.
class Counter final : public Engine {
 public:
  std::string name() const override { return "counter"; }
  bool rounds_every_value() const override { return false; }
  std::unique_ptr<LoadedModel> open(const fs::path& model, bool) const override {
    Document document(model);
    const Graph graph(document);
    casts_.push_back(
        std::ranges::count_if(graph.nodes, [](const Node& node) { return node.op == "Cast"; }));
    return std::make_unique<NoModel>();
  }
  ValueRanges ranges(Document&, const Graph&, const std::vector<Sample>&,
                     const fs::path&) const override {
    return {};
  }
  const std::vector<std::ptrdiff_t>& casts() const { return casts_; }

 private:
  mutable std::vector<std::ptrdiff_t> casts_;
};

TEST(JudgedModels, RoundWhatDescribedOperatorsMakeAndRead) {
  const fs::path folder = scratch_folder("judge");
  GraphBuilder g;
  g.input("x").weight("w").in_domain("acme").node("Blur", {"x", "w"}, {"y"}).output("y");
  Message made = model(g.take());
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "acme")));
  save(folder / "in.onnx", made);
  const ConvertPolicy policy(Options{}, {"[\"acme::Blur\"]\ninputs = [\"T\", \"T\"]\n"
                                         "outputs = [\"T\"]\nclass = \"target_dtype\"\n"
                                         "types.T = [\"float32\", \"float16\"]\n"});
  const auto engine = std::make_shared<Counter>();
  const Workshop workshop(folder / "out.onnx");
  const Judge judge(engine, std::make_shared<ModelFile>(folder / "in.onnx"), 0, {Sample{}},
                    workshop);
  judge.errors(policy, {}, Storage::kEmulated);
  // Down and up again for each of x, w and y.
  EXPECT_THAT(engine->casts(), testing::ElementsAre(0, 6));
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace mezzo::convert
