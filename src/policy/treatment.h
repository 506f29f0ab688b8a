// The treatment of an operator under a policy, for the casting layer.
#pragma once

#include <cstdint>

namespace mezzo {

/// How the casting layer treats a row. The first five are the classes of the same names; those that
/// cast stand in front.
enum class Treatment : std::uint8_t {
  kLow,
  kFloat,
  kPromote,
  kConditional,  ///< kFloat where the row's condition holds, else kShield
  kBanned,
  kPass,    ///< no casts, and what the operator calls inside follows its own class
  kShield,  ///< no casts, neither here nor in what the operator calls inside
};

/// Is the operator cast whatever its arguments are? One comparison, for each call asks.
constexpr bool casts(Treatment treatment) {
  return treatment <= Treatment::kPromote;
}

}  // namespace mezzo
