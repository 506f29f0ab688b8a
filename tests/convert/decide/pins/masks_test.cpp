// Masks that may be beyond the range stay float32.
#include <gmock/gmock.h>

#include "corpus.h"
#include "decision_on.h"
#include "masked_models.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

TEST(Masks, LeaveTheAttentionLow) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    for (const MaskKind kind : kMaskKinds) {
      const Message made = masked_attention(kind);
      EXPECT_TRUE(decision_on(made, "attended", {}, dtype).low) << name_of(kind);
      for (const char* product : {"q", "k", "v", "y"})
        EXPECT_TRUE(decision_on(made, product, {}, dtype).low) << name_of(kind) << product;
    }
  }
}

TEST(Masks, StayFloatThemselves) {
  const fs::path folder = scratch_folder("masks");
  Options options;
  for (const char* dtype : {"float16", "bfloat16"}) {
    options.target_dtype = dtype;
    for (const MaskKind kind : kMaskKinds) {
      save(folder / "in.onnx", masked_attention(kind));
      std::map<std::string, bool> low;
      for (const Decision& decision : plan_model(folder / "in.onnx", options).decisions) {
        if (decision.op == "Attention") low[decision.variable] = decision.low;
      }
      const std::map<std::string, bool> expected{{"T1", true}, {"T2", true}, {"U", false}};
      EXPECT_EQ(low, expected) << name_of(kind) << ' ' << dtype;
    }
  }
  fs::remove_all(folder.parent_path());
}

TEST(Masks, AreMovedInFloatUpToTheScores) {
  EXPECT_FALSE(decision_on(masked_attention(MaskKind::kMoved), "mask_moved").low);
  EXPECT_FALSE(decision_on(masked_attention(MaskKind::kComputed), "mask_far").low);
}

TEST(Masks, KeepTheSumInPiecesFloatUpToItsSoftmax) {
  for (const MaskKind kind : kPieceKinds) {
    const Message made = masked_attention(kind);
    for (const char* dtype : {"float16", "bfloat16"}) {
      EXPECT_FALSE(decision_on(made, "masked", {}, dtype).low) << name_of(kind);
      EXPECT_FALSE(decision_on(made, "shares", {}, dtype).low) << name_of(kind);
      EXPECT_TRUE(decision_on(made, "raw", {}, dtype).low) << name_of(kind);
      EXPECT_TRUE(decision_on(made, "attended", {}, dtype).low) << name_of(kind);
    }
  }
}

// A mask that has the type of all else keeps all of it float32.
TEST(Masks, OfAnOperatorOfOneTypeKeepItFloat) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 6, 8}).input("mask", Element::kFloat, {1, 2, 6, 6});
  g.weight("w", uniform_values(64, 0.8F, 1), {8, 8});
  g.node("MatMul", {"x", "w"}, {"q"}).in_domain("com.microsoft");
  g.node("MultiHeadAttention", {"q", "q", "q", "", "", "mask"}, {"attended"},
         attribute("num_heads", 2));
  g.node("MatMul", {"attended", "w"}, {"y"}).output("y", Element::kFloat, {1, 6, 8});
  Message made = model(g.take());
  made.add(field::model::kOpsetImport, std::make_unique<Message>(opset_import(1, "com.microsoft")));
  EXPECT_FALSE(decision_on(made, "attended").low);
  EXPECT_TRUE(decision_on(made, "q").low);
}

TEST(Masks, ComeOutTheSameFromASecondConversion) {
  const fs::path folder = scratch_folder("masks");
  Options options;
  options.verify = "none";
  for (const MaskKind kind : kMaskKinds) {
    save(folder / "in.onnx", masked_attention(kind));
    convert_model(folder / "in.onnx", folder / "once.onnx", options);
    convert_model(folder / "once.onnx", folder / "twice.onnx", options);
    EXPECT_TRUE(contents(folder / "once.onnx") == contents(folder / "twice.onnx")) << name_of(kind);
  }
  fs::remove_all(folder.parent_path());
}

TEST(Masks, AreWhatIsAddedToScoresAndNothingElse) {
  GraphBuilder g;
  g.input("x").input("bias").weight("w").output("y");
  g.node("MatMul", {"x", "w"}, {"a"}).node("Add", {"a", "bias"}, {"s"});
  const Message made = model(g.node("MatMul", {"s", "w"}, {"y"}).take());
  EXPECT_THAT(decision_on(made, "s").why, testing::Not(testing::HasSubstr("mask")));
}

}  // namespace
}  // namespace mezzo::convert
