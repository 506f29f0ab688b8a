#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "operators/operators.h"

namespace mezzo {
namespace {

using enum CastClass;

const Operator& row(std::string_view name) {
  const auto index = index_of(name);
  if (!index) throw std::runtime_error("no row " + std::string(name));
  return operators()[*index];
}

TEST(Table, IsSortedAndEveryRowIsFoundByItsName) {
  const auto rows = operators();
  EXPECT_TRUE(std::ranges::is_sorted(rows, {}, &Operator::name));
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(index_of(rows[i].name), i);
  EXPECT_FALSE(index_of("conv9d"));
  EXPECT_FALSE(index_of(""));
  EXPECT_FALSE(index_of("zzz"));
}

TEST(Table, HasTheClassesThatTheDesignDecides) {
  const std::map<std::string_view, CastClass> expected{
      {"linear", kLow},
      {"mm", kLow},
      {"conv2d", kLow},
      {"conv2d.padding", kLow},
      {"einsum", kLow},
      {"scaled_dot_product_attention", kLow},
      {"lstm.input", kLow},
      {"lstm.data", kLow},
      {"gru.input", kLow},
      {"rnn_tanh.data", kLow},
      {"rnn_relu.input", kLow},
      {"gru_cell", kLow},
      {"prelu", kLow},
      {"softmax.int", kFloat},
      {"log_softmax.int", kFloat},
      {"layer_norm", kFloat},
      {"group_norm", kFloat},
      {"rms_norm", kFloat},
      {"sum", kFloat},
      {"prod.dim_int", kFloat},
      {"cumsum", kFloat},
      {"norm.Scalar", kFloat},
      {"var.correction", kFloat},
      {"std", kFloat},
      {"mean.dim", kFloat},
      {"pow.Tensor_Scalar", kFloat},
      {"exp", kFloat},
      {"log", kFloat},
      {"mse_loss", kFloat},
      {"cross_entropy_loss", kFloat},
      {"nll_loss", kFloat},
      {"ctc_loss.Tensor", kFloat},
      {"binary_cross_entropy", kFloat},
      {"log_sigmoid", kFloat},
      {"gelu", kFloat},
      {"affine_grid_generator", kFloat},
      {"corrcoef", kFloat},
      {"cov", kFloat},
      {"matrix_power", kFloat},
      {"batch_norm", kNeutral},
      {"relu", kNeutral},
      {"max_pool2d", kNeutral},
      {"dropout", kNeutral},
      {"embedding", kNeutral},
      {"cat", kPromote},
      {"stack", kPromote},
      {"addcdiv", kPromote},
      {"addcmul", kPromote},
      {"add.Tensor", kPromote},
      {"index_put", kPromote},
      {"scatter_add", kPromote},
      {"bilinear", kPromote},
      {"add.Scalar", kNeutral},
  };
  for (const auto& [name, cast_class] : expected) {
    EXPECT_EQ(row(name).class_for(DType::kFloat16), cast_class) << name;
    EXPECT_EQ(row(name).class_for(DType::kBFloat16), cast_class) << name;
  }
}

TEST(Table, DiffersForBfloat16OnlyWhereTheReasonIsRange) {
  std::vector<std::string_view> differing;
  for (const Operator& op : operators()) {
    if (op.class_for(DType::kFloat16) != op.class_for(DType::kBFloat16))
      differing.push_back(op.name);
  }
  EXPECT_THAT(differing, testing::ElementsAre("elu", "hypot"));
  EXPECT_EQ(row("elu").class_for(DType::kFloat16), kFloat);
  EXPECT_EQ(row("elu").class_for(DType::kBFloat16), kNeutral);
}

TEST(Table, OperatorsWithADtypeArgumentAreNotCastTwice) {
  for (const char* name : {"softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "prod",
                           "cumsum", "cumprod", "mean.dim", "nansum", "linalg_vector_norm"}) {
    EXPECT_EQ(row(name).float_by, FloatBy::kDtypeArgument) << name;
  }
  EXPECT_EQ(row("norm.Scalar").float_by, FloatBy::kAppendDtype);
  EXPECT_EQ(row("norm.ScalarOpt_dtype").class_for(DType::kFloat16), kNeutral)
      << "the caller says which";
  EXPECT_EQ(row("exp").float_by, FloatBy::kCast);
  EXPECT_EQ(row("layer_norm").float_by, FloatBy::kCast);
}

TEST(Table, MarksWhatIsSlowWithoutLowPrecisionArithmetic) {
  for (const char* name : {"mm", "linear", "conv2d", "conv_transpose2d.input", "lstm.input",
                           "gru_cell", "scaled_dot_product_attention", "einsum"}) {
    EXPECT_TRUE(row(name).matrix) << name;
  }
  for (const char* name : {"prelu", "softmax.int", "add.Tensor", "relu", "addr"}) {
    EXPECT_FALSE(row(name).matrix) << name;
  }
}

TEST(Table, KeepsWhatEachSystemSays) {
  EXPECT_EQ(row("bmm").listed_by(System::kApex), kLow);
  EXPECT_EQ(row("bmm").listed_by(System::kMxnet), kPromote);
  EXPECT_EQ(row("bmm").listed_by(System::kCuda), kLow);
  EXPECT_EQ(row("bmm").listed_by(System::kCpu), kLow);
  EXPECT_EQ(row("binary_cross_entropy").listed_by(System::kCuda), kBanned);
  EXPECT_EQ(row("cross_entropy_loss").listed_by(System::kCuda), std::nullopt);
}

TEST(Table, OnlyNeutralOperatorsAreLeftAloneWithWhatTheyCall) {
  std::vector<std::string_view> alone;
  for (const Operator& op : operators()) {
    if (!op.alone) continue;
    alone.push_back(op.name);
    EXPECT_EQ(op.class_for(DType::kFloat16), kNeutral) << op.name;
    EXPECT_EQ(op.class_for(DType::kBFloat16), kNeutral) << op.name;
  }
  EXPECT_THAT(alone, testing::ElementsAre("adaptive_avg_pool1d", "adaptive_avg_pool2d",
                                          "adaptive_avg_pool3d"));
}

TEST(Table, NothingIsConditionalOrBannedByDefault) {
  for (const Operator& op : operators()) {
    EXPECT_NE(op.class_for(DType::kFloat16), kConditional) << op.name;
    EXPECT_NE(op.class_for(DType::kFloat16), kBanned) << op.name;
    EXPECT_NE(op.class_for(DType::kBFloat16), kConditional) << op.name;
    EXPECT_NE(op.class_for(DType::kBFloat16), kBanned) << op.name;
  }
}

TEST(Opinions, SayWhoAgreesAndWhoDoesNot) {
  EXPECT_EQ(opinions(row("bmm"), DType::kFloat16),
            "as in Apex, LibTorch for CUDA, LibTorch for CPU; unlike MXNet: promote");
  EXPECT_EQ(opinions(row("binary_cross_entropy"), DType::kFloat16),
            "as in LibTorch for CPU; unlike Apex: banned, LibTorch for CUDA: banned");
  EXPECT_EQ(opinions(row("rms_norm"), DType::kFloat16), "");
  EXPECT_EQ(opinions(row("topk"), DType::kFloat16), "unlike MXNet: float");
}

TEST(Words, AreReadBack) {
  for (const CastClass cast_class : {kLow, kFloat, kPromote, kConditional, kBanned, kNeutral}) {
    EXPECT_EQ(parse_cast_class(name_of(cast_class)), cast_class);
  }
  EXPECT_FALSE(parse_cast_class("lower"));
  for (const System system : kSystems) EXPECT_EQ(parse_system(name_of(system)), system);
  EXPECT_FALSE(parse_system("jax"));
}

TEST(Operators, HaveNoClassForATypeThatIsNotLow) {
  try {
    static_cast<void>(operators().front().class_for(DType::kFloat32));
    FAIL() << "float32 has a class";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no class for float32"), std::string::npos);
  }
}

}  // namespace
}  // namespace mezzo
