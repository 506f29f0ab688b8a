// The pins, a function each; pin_rules() lists them.
#pragma once

#include "convert/decide/pin_context.h"

namespace mezzo::convert {

/// Floats that become indices, integers that are multiplied, norms in pieces, quantised regions.
void pin_patterns(const PinContext&);

/// Pins the inputs of logarithms, and differences of neighbouring samples.
void pin_signals(const PinContext&);

/// Squares, on the way to what tells them apart.
void pin_powers(const PinContext&);

/// Pins a value that a small number keeps from zero, until it divides.
void pin_guarded_divisors(const PinContext&);

/// Angles of positions, and differences of places.
void pin_positions(const PinContext&);

/// Differences of near numbers, on the way to what shows them.
void pin_differences(const PinContext&);

/// Offsets that numbers share, on the way to what takes them away.
void pin_offsets(const PinContext&);

/// States of loops that add to themselves, and what they are multiplied by.
void pin_states(const PinContext&);

/// Pins values that decide a choice or say where something is, and makes equalities.
void pin_selections(const PinContext&);

/// Masks that may be beyond the range, up to the softmax of what they are added to.
void pin_masks(const PinContext&);

/// Pins and equalities against what ONNX Runtime does wrong where it joins operators of float16,
/// for profiles that it runs. The slots must be settled, and are not afterwards.
void pin_joined_operators(const PinContext&);

}  // namespace mezzo::convert
