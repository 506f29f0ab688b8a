#include "ranks/overflow_origin.h"

namespace mezzo::ranks {
namespace {

// The low 32 bits hold the place, counted from 1; above them, who has the lowest rank has the most.
constexpr std::int64_t kPlaces = std::int64_t{1} << 32;

}  // namespace

double overflow_number(const OverflowOrigin& own, int size) {
  const bool fits = own.place && *own.place >= 0 && *own.place + 1 < kPlaces;
  const std::int64_t place = fits ? *own.place + 1 : 0;
  return static_cast<double>((size - own.rank) * kPlaces + place);
}

std::optional<OverflowOrigin> overflow_origin(double maximum, int size) {
  if (!(maximum > 0)) return std::nullopt;
  const auto number = static_cast<std::int64_t>(maximum);
  OverflowOrigin origin;
  origin.rank = size - static_cast<int>(number / kPlaces);
  if (const std::int64_t place = number % kPlaces; place > 0) origin.place = place - 1;
  return origin;
}

}  // namespace mezzo::ranks
