#include "policy/registry.h"

#include <gmock/gmock.h>

#include <thread>

#include "operators/operators.h"
#include "policy/rules.h"

namespace mezzo {
namespace {

using enum CastClass;

TEST(Registry, AnOperatorOfAnotherNamespaceGetsARowBehindTheTable) {
  const auto rows = register_operator("my_ops::first", kLow);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_GE(rows[0], operators().size());
  EXPECT_EQ(row_name(rows[0]), "my_ops::first");
  EXPECT_EQ(registered_row("my_ops::first"), rows[0]);
  EXPECT_FALSE(registered_row("my_ops::none"));
  EXPECT_EQ(Rules(DType::kFloat16).class_of(rows[0]), kLow);
  EXPECT_EQ(Rules(DType::kFloat16).classify("my_ops::first"), kLow);
  EXPECT_EQ(Rules(DType::kFloat16).with("my_ops::first", kFloat).classify("my_ops::first"), kFloat);
}

TEST(Registry, ActsOnRulesMadeLater) {
  const Rules before(DType::kFloat16);
  const auto rows = register_operator("my_ops::late", kFloat);
  EXPECT_EQ(before.class_of(rows[0]), kNeutral);
  EXPECT_EQ(Rules(DType::kFloat16).class_of(rows[0]), kFloat);
  register_operator("my_ops::late", kPromote);
  EXPECT_EQ(Rules(DType::kFloat16).class_of(rows[0]), kPromote) << "the later call holds";
}

TEST(Registry, AnOperatorOfTheTableKeepsItsRows) {
  const auto rows = register_operator("aten::conv_tbc", kFloat);
  EXPECT_THAT(rows, testing::ElementsAre(*index_of("conv_tbc")));
  const Rules changed(DType::kFloat16);
  EXPECT_EQ(changed.classify("conv_tbc"), kFloat);
  EXPECT_THAT(changed.why("conv_tbc"), testing::HasSubstr("registered by the program"));
  register_operator("aten::conv_tbc", kLow);
}

TEST(Registry, ManyThreadsGetOneRowForOneName) {
  std::vector<std::size_t> rows(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    threads.emplace_back([&rows, i] {
      for (int turn = 0; turn < 100; ++turn) {
        rows[i] = row_for("my_ops::shared" + std::to_string(turn));
        row_name(rows[i]);
      }
      rows[i] = row_for("my_ops::shared0");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::size_t row : rows) EXPECT_EQ(row, rows[0]);
}

}  // namespace
}  // namespace mezzo
