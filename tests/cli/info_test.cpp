#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

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

// float16 is many times slower or faster than float: what is chosen is no matter of luck.
TEST(Info, ChoosesTheSameOnABusyMachine) {
  std::vector<std::future<Outcome>> programs;
  const unsigned count = 4 * std::min(std::max(std::thread::hardware_concurrency(), 1U), 4U);
  for (unsigned i = 0; i < count; ++i) {
    programs.push_back(std::async(std::launch::async, [] { return mezzo("info --json"); }));
  }
  std::set<std::string> modes;
  for (auto& program : programs) {
    const json info = json::parse(program.get().out);
    modes.insert(info["compute"]["float16"]["mode"].get<std::string>());
  }
  EXPECT_EQ(modes.size(), 1);
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
