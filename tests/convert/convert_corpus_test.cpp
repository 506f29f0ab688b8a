// Every model of the corpus is converted in every mode; the strict checker finds nothing new,
// bytes do not change from run to run, and a second conversion has nothing to do.
#include <gmock/gmock.h>

#include <cstdio>
#include <tuple>

#include "builder.h"
#include "convert/graph/check.h"
#include "convert/graph/graph.h"
#include "corpus.h"
#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

class ConvertCorpus : public testing::TestWithParam<std::tuple<const char*, const char*, bool>> {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("convert_corpus");
    std::tie(options_.target_dtype, options_.io, options_.cast_optional_params) = GetParam();
    options_.verify = "none";
  }

  fs::path folder_;
  Options options_;
};

TEST_P(ConvertCorpus, IsValidDeterministicAndIdempotent) {
  std::size_t converted = 0;
  std::size_t refused = 0;
  for (const auto& path : corpus_models()) {
    const fs::path first = folder_ / "first.onnx";
    const fs::path second = folder_ / "second.onnx";
    try {
      convert_model(path, first, options_);
    } catch (const UnsupportedError&) {
      ++refused;  // 16-bit inputs in an opset without a Cast to the type
      continue;
    }
    convert_model(path, second, options_);
    ASSERT_EQ(contents(first), contents(second)) << path;
    const Result again = convert_model(first, second, options_);
    EXPECT_TRUE(again.report.unchanged) << path << '\n' << again.report.to_text();
    ++converted;
  }
  std::printf("%s, io %s: %zu models converted, %zu refused\n", options_.target_dtype.c_str(),
              options_.io.c_str(), converted, refused);
  EXPECT_EQ(converted + refused, 1072U);
  if (options_.io == "keep") {
    EXPECT_EQ(refused, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ConvertCorpus,
                         testing::Combine(testing::Values("float16", "bfloat16"),
                                          testing::Values("keep", "low"), testing::Bool()));

}  // namespace
}  // namespace mezzo::convert
