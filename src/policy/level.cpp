#include "policy/level.h"

#include <algorithm>
#include <array>

#include "core/raise.h"

namespace mezzo {
namespace {

constexpr DType kHalf = DType::kFloat16;
constexpr DType kBFloat = DType::kBFloat16;
constexpr std::nullopt_t kNone = std::nullopt;
constexpr std::nullopt_t kDynamic = std::nullopt;

constexpr std::array kLevels{
    Level{"O0", "float32 training", kHalf, false, DType::kFloat32, kNone, false, 1.0},
    Level{"O1", "operators cast by policy to float16, weights in float32", kHalf, true, kNone,
          kNone, kNone, kDynamic},
    Level{"O2", "float16 model, batch norms and master weights in float32", kHalf, false, kHalf,
          true, true, kDynamic},
    Level{"O3", "float16 throughout: the speed to compare with", kHalf, false, kHalf, false, false,
          1.0},
    Level{"O4", "operators cast by policy to bfloat16, weights in float32", kBFloat, true, kNone,
          kNone, kNone, 1.0},
    Level{"O5", "bfloat16 model, batch norms and master weights in float32", kBFloat, false,
          kBFloat, true, true, 1.0},
};

}  // namespace

std::span<const Level> levels() noexcept {
  return kLevels;
}

std::string level_names() {
  std::string names;
  for (const Level& level : kLevels) {
    if (!names.empty()) names += ", ";
    names += level.name;
  }
  return names;
}

const Level& level_named(std::string_view name) {
  const auto* level = std::ranges::find(kLevels, name, &Level::name);
  if (level != kLevels.end()) return *level;
  raise<ConfigError>("level", "unknown opt_level '", name, "'; expected one of ", level_names(),
                     " (the first character is the letter O, not zero)");
}

}  // namespace mezzo
