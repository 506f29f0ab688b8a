// Which arithmetic on sizes gives a number that was seen at several sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace mezzo::deploy {

/// A number computed from sizes. Division rounds down.
struct SizeExpression {
  enum class Kind : std::uint8_t { kAtom, kNumber, kAdd, kSubtract, kMultiply, kDivide };
  Kind kind = Kind::kNumber;
  std::int64_t number = 0;            // of kNumber
  std::size_t atom = 0;               // of kAtom: which size
  std::vector<SizeExpression> parts;  // two, of the others

  static SizeExpression of_atom(std::size_t atom);
  static SizeExpression of_number(std::int64_t number);
  static SizeExpression made(Kind kind, SizeExpression left, SizeExpression right);

  /// Its value, where `sizes` gives that of every atom.
  std::int64_t value(const std::vector<std::int64_t>& sizes) const;
};

/// The numbers of one size, or of one constant, in each of the traces.
using Seen = std::vector<std::int64_t>;

/// The simplest expression that gives `target` in every trace: a size, a multiple, a sum, a
/// product, a linear function, one with a division, or what is missing to a multiple. Earlier atoms
/// are preferred. Nothing if there is none.
std::optional<SizeExpression> fit_sizes(const std::vector<Seen>& atoms, const Seen& target);

/// A number of floating point that depends on a size: factor * size^power.
struct ScaledSize {
  std::size_t atom = 0;
  double factor = 1, power = 1;  // power: 1, -1, 0.5, -0.5
};
std::optional<ScaledSize> fit_scale(const std::vector<Seen>& atoms,
                                    const std::vector<double>& target);

}  // namespace mezzo::deploy
