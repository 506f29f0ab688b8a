#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "cli/golden.h"
#include "cli/program.h"
#include "operators/operators.h"
#include "policy/level.h"

namespace mezzo::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json lists(const std::string& arguments) {
  const Outcome outcome = mezzo("lists --json " + arguments);
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json::parse(outcome.out);
}

TEST(Lists, AreTheWholeTable) {
  const json all = lists("");
  EXPECT_EQ(all.size(), operators().size());
  std::set<std::string> names;
  for (const json& item : all) {
    names.insert(item["op"]);
    const auto row = index_of(item["op"].get<std::string>());
    ASSERT_TRUE(row) << item;
    EXPECT_EQ(item["class"]["float16"], name_of(operators()[*row].class_for(DType::kFloat16)))
        << item;
    EXPECT_EQ(item["class"]["bfloat16"], name_of(operators()[*row].class_for(DType::kBFloat16)))
        << item;
    EXPECT_FALSE(item["why"].get<std::string>().empty()) << item;
    EXPECT_TRUE(item["aliases"].is_array()) << item;
    EXPECT_TRUE(item["sources"].is_array()) << item;
  }
  EXPECT_EQ(names.size(), operators().size());
}

TEST(Lists, AnItemHasTheAgreedKeys) {
  for (const json& item : lists("--class low")) {
    if (item["op"] != "linear") continue;
    EXPECT_THAT(item["aliases"].get<std::vector<std::string>>(),
                testing::IsSupersetOf({"FullyConnected", "torch.nn.functional.linear"}));
    EXPECT_THAT(item["sources"].get<std::vector<std::string>>(),
                testing::ElementsAre("apex", "mxnet", "cuda", "cpu"));
    return;
  }
  FAIL() << "linear is low";
}

TEST(Lists, CanBeNarrowed) {
  for (const json& item : lists("--class float --dtype bf16")) {
    EXPECT_EQ(item["class"], json({{"bfloat16", "float"}})) << item;
  }
  for (const char* system : {"apex", "mxnet", "cuda", "cpu"}) {
    const json some = lists(std::string("--system ") + system);
    EXPECT_GT(some.size(), 50U);
    EXPECT_LT(some.size(), operators().size());
    for (const json& item : some) {
      EXPECT_THAT(item["sources"].get<std::vector<std::string>>(), testing::Contains(system));
    }
  }
  EXPECT_GT(lists("--system torch").size(), lists("--system cuda").size());
}

TEST(Lists, AsTextHaveAHeadingAndOneLineForEachOperator) {
  const Outcome outcome = mezzo("lists --class promote --dtype float16");
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_THAT(outcome.out, testing::StartsWith("operator"));
  EXPECT_THAT(outcome.out, HasSubstr("\ncat "));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("bfloat16")));
}

TEST(Lists, OfLevelsAreTheTable) {
  expect_golden("levels.txt", mezzo("lists --levels").out);
  const json all = lists("--levels");
  ASSERT_EQ(all.size(), levels().size());
  EXPECT_EQ(all[0]["level"], "O0");
  EXPECT_EQ(all[0]["loss_scale"], 1.0);
  EXPECT_EQ(all[1]["cast_model_type"], nullptr);
  EXPECT_EQ(all[1]["patch_torch_functions"], true);
  EXPECT_EQ(all[2]["cast_model_type"], "float16");
  EXPECT_EQ(all[2]["loss_scale"], "dynamic");
  EXPECT_EQ(all[5]["dtype"], "bfloat16");
}

}  // namespace
}  // namespace mezzo::cli
