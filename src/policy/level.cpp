#include "policy/level.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/nearest.h"
#include "core/raise.h"

namespace mezzo {
namespace {

constexpr std::optional<double> kDynamic = std::nullopt;

// Every row names every field: a new field is an error here until each level has answered.
constexpr std::array kLevels{
    Level{.name = "O0",
          .brief = "float32 training",
          .low = DType::kFloat16,
          .cast_ops = false,
          .cast_model_type = DType::kFloat32,
          .keep_batchnorm_fp32 = std::nullopt,
          .master_weights = false,
          .loss_scale = 1.0,
          .check_finite = false},
    Level{.name = "O1",
          .brief = "operators cast by policy to float16, weights in float32",
          .low = DType::kFloat16,
          .cast_ops = true,
          .cast_model_type = std::nullopt,
          .keep_batchnorm_fp32 = std::nullopt,
          .master_weights = std::nullopt,
          .loss_scale = kDynamic,
          .check_finite = true},
    Level{.name = "O2",
          .brief = "float16 model, batch norms and master weights in float32",
          .low = DType::kFloat16,
          .cast_ops = false,
          .cast_model_type = DType::kFloat16,
          .keep_batchnorm_fp32 = true,
          .master_weights = true,
          .loss_scale = kDynamic,
          .check_finite = true},
    Level{.name = "O3",
          .brief = "float16 throughout: the speed to compare with",
          .low = DType::kFloat16,
          .cast_ops = false,
          .cast_model_type = DType::kFloat16,
          .keep_batchnorm_fp32 = false,
          .master_weights = false,
          .loss_scale = 1.0,
          .check_finite = false},
    Level{.name = "O4",
          .brief = "operators cast by policy to bfloat16, weights in float32",
          .low = DType::kBFloat16,
          .cast_ops = true,
          .cast_model_type = std::nullopt,
          .keep_batchnorm_fp32 = std::nullopt,
          .master_weights = std::nullopt,
          .loss_scale = 1.0,
          .check_finite = true},
    Level{.name = "O5",
          .brief = "bfloat16 model, batch norms and master weights in float32",
          .low = DType::kBFloat16,
          .cast_ops = false,
          .cast_model_type = DType::kBFloat16,
          .keep_batchnorm_fp32 = true,
          .master_weights = true,
          .loss_scale = 1.0,
          .check_finite = true},
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

namespace {

std::string nearest_level(std::string_view name) {
  std::array<std::string_view, kLevels.size()> names;
  std::ranges::transform(kLevels, names.begin(), &Level::name);
  return did_you_mean(name, names);
}

}  // namespace

const Level& level_named(std::string_view name) {
  const auto* level = std::ranges::find(kLevels, name, &Level::name);
  if (level != kLevels.end()) return *level;
  raise<ConfigError>("level", "unknown opt_level '", name, "'; expected one of ", level_names(),
                     " (the first character is the letter O, not zero)", nearest_level(name));
}

}  // namespace mezzo
