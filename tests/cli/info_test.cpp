#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/program.h"
#include "mezzo/version.h"

namespace mezzo::cli {
namespace {

using nlohmann::json;

TEST(Info, AsJsonHasTheAgreedKeys) {
  const Outcome outcome = mezzo("info --json");
  const json info = json::parse(outcome.out);
  EXPECT_EQ(info["versions"]["mezzo"], version());
  EXPECT_EQ(info["devices"][0]["type"], "cpu");
  EXPECT_GE(info["devices"][0]["cores"], 1);
  EXPECT_TRUE(info["isa"].is_array());
  EXPECT_TRUE(info.contains("rates"));
  EXPECT_TRUE(info.contains("compute"));
}

#ifdef MEZZO_WITH_TORCH
TEST(Info, MeasuresAndSaysWhatIsEmulated) {
  const Outcome outcome = mezzo("info --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json info = json::parse(outcome.out);
  EXPECT_THAT(info["versions"]["libtorch"].get<std::string>(), testing::StartsWith("2."));
  EXPECT_GT(info["rates"]["float32"], 0.0);
  for (const char* dtype : {"float16", "bfloat16"}) {
    EXPECT_TRUE(info["rates"].contains(dtype));
    EXPECT_THAT(info["compute"][dtype]["mode"].get<std::string>(),
                testing::AnyOf("native", "emulated"));
    EXPECT_FALSE(info["compute"][dtype]["why"].get<std::string>().empty());
  }
  EXPECT_TRUE(info["absent"].is_array());
}

TEST(Info, AsTextNamesEverything) {
  const Outcome outcome = mezzo("info");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* word : {"mezzo", "libtorch", "cpu", "isa", "GFLOP/s", "float16", "bfloat16"}) {
    EXPECT_THAT(outcome.out, testing::HasSubstr(word));
  }
}
#else
TEST(Info, WithoutLibTorchShowsTheRestAndSaysWhy) {
  const Outcome outcome = mezzo("info --json");
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, testing::HasSubstr("libmezzo_cli_torch.so"));
  EXPECT_EQ(json::parse(outcome.out)["versions"]["libtorch"], nullptr);
}
#endif

}  // namespace
}  // namespace mezzo::cli
