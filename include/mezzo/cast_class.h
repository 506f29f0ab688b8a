// The decision of a policy about an operator.
#pragma once

#include <cstdint>

namespace mezzo {

/// How an operator's floating tensor arguments are treated while casts are on. float64, integer and
/// boolean arguments are never touched, and an operator with a float64 argument is left alone
/// whole.
enum class CastClass : std::uint8_t {
  kLow,          ///< cast to the policy's low type: the operator gains speed and loses little
  kFloat,        ///< cast to float32: range or summation would suffer in 16 bits
  kPromote,      ///< cast to the widest floating type among the arguments
  kConditional,  ///< float32 where an argument has one of the listed values, else as kNeutral
  kBanned,       ///< an error, for operators that a caller wants to hear of
  kNeutral,      ///< untouched, with all that it calls inside: runs in whatever type arrives
};

}  // namespace mezzo
