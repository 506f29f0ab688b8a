// Attention under masks of -1e9, in one operator and in pieces.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "builder.h"
#include "small_models.h"

namespace mezzo::convert {

enum class MaskKind {
  kGiven,     // by the caller, as it is
  kMoved,     // given, with other dimensions
  kComputed,  // (1 - given) * -1e9
  kInPieces,  // given, added to scores that Softmax reads
  kTaken,     // the opposite given, subtracted from such scores
};
inline constexpr std::array kMaskKinds{MaskKind::kGiven, MaskKind::kMoved, MaskKind::kComputed};
inline constexpr std::array kPieceKinds{MaskKind::kInPieces, MaskKind::kTaken};

inline std::string name_of(MaskKind kind) {
  constexpr std::array<const char*, 5> kNames{"given", "moved", "computed", "in pieces", "taken"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// x [1, 6, 8] and a mask [6, 6]; the output is y. `far` is what hides a place.
inline Message masked_attention(MaskKind kind, int opset = 23, float far = -1e9F) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 6, 8}).input("mask", Element::kFloat, {6, 6});
  for (const char* name : {"wq", "wk", "wv", "wo"}) {
    const auto seed = static_cast<std::uint32_t>(name[1]);
    g.weight(name, uniform_values(64, 0.8F, seed), {8, 8});
  }
  for (const char* name : {"q", "k", "v"}) g.node("MatMul", {"x", std::string("w") + name}, {name});
  std::string mask = "mask";
  if (kind == MaskKind::kMoved) {
    g.initializer(tensor<std::int64_t>("axes", Element::kInt64, {2}, {0, 1}));
    g.node("Unsqueeze", {"mask", "axes"}, {"mask_moved"});
    mask = "mask_moved";
  }
  if (kind == MaskKind::kComputed) {
    g.weight("one", {1}, {}).weight("far", {far}, {});
    g.node("Sub", {"one", "mask"}, {"hidden"}).node("Mul", {"hidden", "far"}, {"mask_far"});
    mask = "mask_far";
  }
  if (kind == MaskKind::kInPieces || kind == MaskKind::kTaken) {
    g.weight("scale", {0.35F}, {});
    g.node("Transpose", {"k"}, {"kt"}, integers_attribute("perm", {0, 2, 1}));
    g.node("MatMul", {"q", "kt"}, {"raw"}).node("Mul", {"raw", "scale"}, {"scores"});
    g.node(kind == MaskKind::kTaken ? "Sub" : "Add", {"scores", mask}, {"masked"});
    g.node("Softmax", {"masked"}, {"shares"}).node("MatMul", {"shares", "v"}, {"attended"});
  } else {
    g.node("Attention", {"q", "k", "v", mask}, {"attended"}, attribute("q_num_heads", 2),
           attribute("kv_num_heads", 2));
  }
  g.node("MatMul", {"attended", "wo"}, {"y"}).output("y", Element::kFloat, {1, 6, 8});
  return model(g.take(), opset, 10);
}

/// The mask that the model is given, where `hidden` says what hides a place: the first row sees
/// itself alone, the third one nothing.
inline std::vector<float> mask_values(MaskKind kind, float far) {
  std::vector<float> values(36, 0.0F);
  for (std::size_t i = 0; i < 36; ++i) {
    const bool is_hidden = (i > 0 && i < 6) || (i >= 12 && i < 18);
    if (kind == MaskKind::kComputed) {
      values[i] = is_hidden ? 0.0F : 1.0F;
    } else if (is_hidden) {
      values[i] = kind == MaskKind::kTaken ? -far : far;
    }
  }
  return values;
}

}  // namespace mezzo::convert
