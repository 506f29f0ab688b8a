#include "policy/level.h"

#include <gmock/gmock.h>

#include "mezzo/error.h"

namespace mezzo {
namespace {

TEST(Level, TheTableIsTheOneOfTheOriginals) {
  struct Expected {
    std::string_view name;
    std::optional<DType> cast_model_type;
    bool cast_ops;
    std::optional<bool> keep_batchnorm_fp32, master_weights;
    std::optional<double> loss_scale;
    bool check_finite;
  };
  const auto half = DType::kFloat16;
  const auto bfloat = DType::kBFloat16;
  const std::vector<Expected> table{
      {"O0", DType::kFloat32, false, std::nullopt, false, 1.0, false},
      {"O1", std::nullopt, true, std::nullopt, std::nullopt, std::nullopt, true},
      {"O2", half, false, true, true, std::nullopt, true},
      {"O3", half, false, false, false, 1.0, false},
      {"O4", std::nullopt, true, std::nullopt, std::nullopt, 1.0, true},
      {"O5", bfloat, false, true, true, 1.0, true},
  };
  ASSERT_EQ(levels().size(), table.size());
  for (const Expected& row : table) {
    const Level& level = level_named(row.name);
    EXPECT_EQ(level.cast_model_type, row.cast_model_type) << row.name;
    EXPECT_EQ(level.cast_ops, row.cast_ops) << row.name;
    EXPECT_EQ(level.keep_batchnorm_fp32, row.keep_batchnorm_fp32) << row.name;
    EXPECT_EQ(level.master_weights, row.master_weights) << row.name;
    EXPECT_EQ(level.loss_scale, row.loss_scale) << row.name;
    EXPECT_EQ(level.check_finite, row.check_finite) << row.name;
    EXPECT_EQ(level.low, row.name >= "O4" ? bfloat : half) << row.name;
    EXPECT_FALSE(level.brief.empty()) << row.name;
  }
}

TEST(Level, AnUnknownNameIsAnsweredWithTheNearestOne) {
  for (const auto& [name, meant] : {std::pair{"o1", "'O1'"}, {"03", "'O3'"}, {"O4 ", "'O4'"}}) {
    try {
      level_named(name);
      FAIL() << name;
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(std::string("did you mean ") + meant));
    }
  }
}

TEST(Level, AnUnknownNameIsAnErrorThatSaysLetterNotZero) {
  for (const char* name : {"01", "O6", "", "o1", "O1 "}) {
    try {
      level_named(name);
      FAIL() << name;
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr(std::string("'") + name + "'"),
                                           testing::HasSubstr("O0, O1, O2, O3, O4, O5"),
                                           testing::HasSubstr("letter O, not zero")));
    }
  }
}

}  // namespace
}  // namespace mezzo
