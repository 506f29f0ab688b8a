// Optimization levels are rows of data: code asks the field, never the name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace mezzo {

/// A level's defaults, as the tables of Apex (O0 to O3) and of its ROCm fork (O4, O5) have them.
/// An empty optional is the tables' "None": the property has no meaning at that level.
struct Level {
  std::string_view name;
  std::string_view brief;
  DType low;                             ///< the 16-bit type of the level's casts
  bool cast_ops;                         ///< operators are cast by policy (patch_torch_functions)
  std::optional<DType> cast_model_type;  ///< parameters, buffers and inputs become this
  std::optional<bool> keep_batchnorm_fp32;
  std::optional<bool> master_weights;
  std::optional<double> loss_scale;  ///< a static scale; empty: dynamic
  bool check_finite;  ///< a gradient that is not finite skips the step, whatever the scale is
};

/// O0 to O5, in that order.
std::span<const Level> levels() noexcept;

/// The row of that name. Throws ConfigError for any other name, which lists the names and says that
/// they start with the letter O.
const Level& level_named(std::string_view name);

/// "O0, O1, O2, O3, O4, O5": for messages and help.
std::string level_names();

}  // namespace mezzo
