// Masks that a caller gives stay finite.
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

TEST(Masks, AreMovedInFloatUpToTheScores) {
  EXPECT_FALSE(decision_on(masked_attention(MaskKind::kMoved), "mask_moved").low);
  EXPECT_FALSE(decision_on(masked_attention(MaskKind::kComputed), "mask_far").low);
}

TEST(Masks, ComeOutTheSameFromASecondConversion) {
  const fs::path folder = scratch_folder("masks");
  Options options;
  options.verify = "none";
  for (const MaskKind kind : kMaskKinds) {
    save(folder / "in.onnx", masked_attention(kind));
    convert_model(folder / "in.onnx", folder / "once.onnx", options);
    convert_model(folder / "once.onnx", folder / "twice.onnx", options);
    EXPECT_TRUE(contents(folder / "once.onnx") == contents(folder / "twice.onnx"))
        << name_of(kind);
  }
  fs::remove_all(folder.parent_path());
}

// What is no mask is cast as it is.
TEST(Masks, AreWhatIsAddedToScoresAndNothingElse) {
  const fs::path folder = scratch_folder("masks");
  GraphBuilder g;
  g.input("x").input("bias").weight("w").output("y");
  g.node("MatMul", {"x", "w"}, {"a"}).node("Add", {"a", "bias"}, {"s"});
  save(folder / "in.onnx", model(g.node("MatMul", {"s", "w"}, {"y"}).take()));
  Options options;
  options.verify = "none";
  convert_model(folder / "in.onnx", folder / "out.onnx", options);
  EXPECT_EQ(contents(folder / "out.onnx").find("Clip"), std::string::npos);
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace mezzo::convert
