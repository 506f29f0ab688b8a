#include "convert/decide/pins/pins.h"

#include <array>

namespace mezzo::convert {
namespace {

constexpr std::array kPinRules{
    PinRule{"patterns", "indices, counted positions, norms in pieces, integers", pin_patterns},
    PinRule{"signals", "operands of logarithms, differences of neighbouring samples", pin_signals},
    PinRule{"selections", "what decides a choice, coordinates", pin_selections},
    PinRule{"powers", "squares before logarithms, roots, quotients, comparisons", pin_powers},
    PinRule{"divisors", "small numbers that keep divisors from zero", pin_guarded_divisors},
    PinRule{"positions", "angles of positions, differences of places", pin_positions},
    PinRule{"differences", "differences of near numbers", pin_differences},
    PinRule{"states", "states of loops that add to themselves", pin_states},
    PinRule{"offsets", "what numbers share before a normalisation", pin_offsets},
    PinRule{"masks", "masks that may be beyond the range", pin_masks},
    PinRule{"joins", "what ONNX Runtime joins wrongly", pin_joined_operators, true},
};

}  // namespace

std::span<const PinRule> pin_rules() {
  return kPinRules;
}

}  // namespace mezzo::convert
