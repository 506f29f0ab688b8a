// Every model of the corpus is read whole, understood, and written back byte for byte.
#include "corpus.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <set>
#include <string>

#include "convert/graph/check.h"
#include "convert/graph/graph.h"

namespace mezzo::convert {
namespace {

TEST(Corpus, IsWrittenBackByteForByte) {
  std::size_t count = 0;
  for (const auto& path : corpus_models()) {
    Document document(path);
    const Graph graph(document);
    StringSink sink;
    document.model().write(sink);
    EXPECT_EQ(sink.text, document.bytes()) << path;
    ++count;
  }
  std::printf("%zu models written back unchanged\n", count);
  EXPECT_EQ(count, 1072U);
}

// Three models of the corpus say opset 6 and have integer constants, which only opset 9 allows.
TEST(Corpus, HasTypesEverywhereAndThreeInvalidModels) {
  const std::set<std::string> training{"Adagrad", "Adam", "Momentum", "Gradient"};
  std::set<std::string> invalid;
  for (const auto& path : corpus_models()) {
    Document document(path);
    const Graph graph(document);
    if (!check_graph(graph).empty()) invalid.insert(path.parent_path().filename());
    for (const Value& value : graph.values) {
      const bool is_free =
          value.producer == kNone || training.contains(std::string(graph.node(value.producer).op));
      EXPECT_TRUE(value.type.is_known() || is_free) << path << ' ' << graph.describe(value);
    }
  }
  EXPECT_THAT(invalid, testing::ElementsAre("test_PixelShuffle", "test_operator_repeat",
                                            "test_operator_repeat_dim_overflow"));
}

}  // namespace
}  // namespace mezzo::convert
