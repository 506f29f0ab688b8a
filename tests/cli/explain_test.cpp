#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/golden.h"
#include "cli/program.h"

namespace mezzo::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class PolicyFile {
 public:
  explicit PolicyFile(const std::string& text) { std::ofstream(path_) << text; }
  ~PolicyFile() { std::filesystem::remove(path_); }
  std::string option() const { return " --policy " + path_; }

 private:
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("explain_" + std::to_string(getpid()) + ".toml"))
          .string();
};

TEST(Explain, PrintsWhatThereIsToKnow) {
  std::string text;
  for (const char* op : {"softmax", "bmm", "FullyConnected", "aten::add", "elu", "exp_", "mm.out",
                         "LeakyReLU", "sgd_update", "conv2d.padding"}) {
    const Outcome outcome = mezzo(std::string("explain ") + op);
    EXPECT_EQ(outcome.code, kDone) << op << outcome.err;
    EXPECT_EQ(outcome.err, "");
    text += outcome.out + "\n";
  }
  expect_golden("explain.txt", text);
}

TEST(Explain, AsJsonIsOneObject) {
  const Outcome outcome = mezzo("explain softmax --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json object = json::parse(outcome.out);
  EXPECT_EQ(object["op"], "softmax");
  EXPECT_EQ(object["class"], json({{"float16", "float"}, {"bfloat16", "float"}}));
  EXPECT_FALSE(object["why"].get<std::string>().empty());
  EXPECT_THAT(object["aliases"].get<std::vector<std::string>>(),
              testing::Contains("SoftmaxOutput"));
  EXPECT_EQ(object["sources"], json({"apex", "mxnet", "cuda"}));
  EXPECT_EQ(object["levels"]["O1"], "runs in float32");
  EXPECT_EQ(object["overloads"].size(), 2U);
}

TEST(Explain, AnUnknownNameFailsWithTheNearest) {
  for (const char* option : {"", " --json"}) {
    const Outcome outcome = mezzo(std::string("explain softmx") + option);
    EXPECT_EQ(outcome.code, kWrongUsage);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("unknown operator 'softmx'; did you mean 'softmax'"));
  }
  EXPECT_EQ(mezzo("explain ''").code, kWrongUsage);
}

#ifdef MEZZO_WITH_TORCH
TEST(Explain, KnowsOperatorsOfLibTorchThatNoListHas) {
  const Outcome outcome = mezzo("explain silu");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, testing::StartsWith("aten::silu\n"));
  EXPECT_THAT(outcome.out, HasSubstr("runs in whatever type arrives"));
  EXPECT_EQ(json::parse(mezzo("explain silu --json").out)["class"]["float16"], "neutral");
  const PolicyFile file("dtype = \"float16\"\n[operators]\nfloat = [\"silu\"]\n");
  EXPECT_THAT(mezzo("explain silu" + file.option()).out, HasSubstr("float16   float"));
}
#endif

TEST(Explain, OneTypeHasItsLevelsOnly) {
  const std::string text = mezzo("explain elu --dtype bfloat16").out;
  EXPECT_THAT(text, HasSubstr("O4"));
  EXPECT_THAT(text, testing::Not(HasSubstr("O1")));
  EXPECT_THAT(text, testing::Not(HasSubstr("float16   float\n")));
}

TEST(Explain, FollowsAPolicyFile) {
  const PolicyFile file("dtype = \"bfloat16\"\n[operators]\nlow = [\"softmax\"]\n");
  const Outcome outcome = mezzo("explain softmax" + file.option());
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bfloat16  low"));
  EXPECT_THAT(outcome.out, HasSubstr("by the override of 'softmax'"));
  EXPECT_THAT(outcome.out, HasSubstr("runs in bfloat16"));
  EXPECT_EQ(mezzo("explain softmax --dtype float16" + file.option()).code, kWrongUsage);
}

TEST(Explain, APolicyFileWithAMistakeNamesTheLine) {
  const PolicyFile file("dtype = \"bfloat16\"\n[operators]\nlow = [\"softmx\"]\n");
  const Outcome outcome = mezzo("explain softmax" + file.option());
  EXPECT_EQ(outcome.code, kWrongUsage);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("line 3: unknown operator 'softmx'; did you mean 'softmax'"));
  EXPECT_EQ(mezzo("explain softmax --policy /nonexistent/policy.toml").code, kFailed);
}

}  // namespace
}  // namespace mezzo::cli
