#include "deploy/sizes_expression.h"

#include <cmath>
#include <functional>
#include <utility>

namespace mezzo::deploy {
namespace {

using Kind = SizeExpression::Kind;
using Fitted = std::optional<SizeExpression>;

std::int64_t divided(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

/// Does `compute` of the number of the trace give the target in all of them?
bool gives(const Seen& target, const std::function<std::int64_t(std::size_t)>& compute) {
  for (std::size_t trace = 0; trace < target.size(); ++trace) {
    if (compute(trace) != target[trace]) return false;
  }
  return true;
}

SizeExpression plus(SizeExpression left, std::int64_t number) {
  if (number == 0) return left;
  if (number < 0) {
    return SizeExpression::made(Kind::kSubtract, std::move(left),
                                SizeExpression::of_number(-number));
  }
  return SizeExpression::made(Kind::kAdd, std::move(left), SizeExpression::of_number(number));
}

SizeExpression times(SizeExpression left, std::int64_t number) {
  if (number == 1) return left;
  return SizeExpression::made(Kind::kMultiply, std::move(left), SizeExpression::of_number(number));
}

SizeExpression over(SizeExpression left, std::int64_t number) {
  return SizeExpression::made(Kind::kDivide, std::move(left), SizeExpression::of_number(number));
}

/// factor * x + offset for a column of numbers x that two traces tell apart.
Fitted linear(const Seen& x, const Seen& target, const SizeExpression& of_x) {
  std::size_t other = 1;
  while (other < x.size() && x[other] == x[0]) ++other;
  if (other == x.size()) return {};
  const std::int64_t rise = target[other] - target[0], run = x[other] - x[0];
  if (rise % run != 0) return {};
  const std::int64_t factor = rise / run, offset = target[0] - factor * x[0];
  if (factor == 0) return {};
  if (!gives(target, [&](std::size_t t) { return factor * x[t] + offset; })) return {};
  return plus(times(of_x, factor), offset);
}

Fitted of_one(const std::vector<Seen>& atoms, const Seen& target) {
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    if (atoms[a] == target) return SizeExpression::of_atom(a);
  }
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    if (Fitted made = linear(atoms[a], target, SizeExpression::of_atom(a))) return made;
  }
  return {};
}

/// A product of two or three sizes, with a factor and an offset.
Fitted of_products(const std::vector<Seen>& atoms, const Seen& target) {
  const auto product = [&](const Seen& a, const Seen& b) {
    Seen result(a.size());
    for (std::size_t t = 0; t < a.size(); ++t) result[t] = a[t] * b[t];
    return result;
  };
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    for (std::size_t b = a; b < atoms.size(); ++b) {
      const Seen two = product(atoms[a], atoms[b]);
      const SizeExpression of_two = SizeExpression::made(
          Kind::kMultiply, SizeExpression::of_atom(a), SizeExpression::of_atom(b));
      if (Fitted made = linear(two, target, of_two)) return made;
    }
  }
  constexpr std::size_t kMany = 12;  // triples of more sizes than these are not tried
  const std::size_t some = std::min(atoms.size(), kMany);
  for (std::size_t a = 0; a < some; ++a) {
    for (std::size_t b = a; b < some; ++b) {
      for (std::size_t c = b; c < some; ++c) {
        const Seen three = product(product(atoms[a], atoms[b]), atoms[c]);
        const SizeExpression of_three =
            SizeExpression::made(Kind::kMultiply,
                                 SizeExpression::made(Kind::kMultiply, SizeExpression::of_atom(a),
                                                      SizeExpression::of_atom(b)),
                                 SizeExpression::of_atom(c));
        if (Fitted made = linear(three, target, of_three)) return made;
      }
    }
  }
  return {};
}

/// a + b and a - b with an offset.
Fitted of_sums(const std::vector<Seen>& atoms, const Seen& target) {
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    for (std::size_t b = 0; b < atoms.size(); ++b) {
      for (const std::int64_t sign : {1, -1}) {
        if (a == b || (sign == 1 && b < a)) continue;
        const std::int64_t offset = target[0] - atoms[a][0] - sign * atoms[b][0];
        if (!gives(target,
                   [&](std::size_t t) { return atoms[a][t] + sign * atoms[b][t] + offset; }))
          continue;
        return plus(SizeExpression::made(sign == 1 ? Kind::kAdd : Kind::kSubtract,
                                         SizeExpression::of_atom(a), SizeExpression::of_atom(b)),
                    offset);
      }
    }
  }
  return {};
}

/// Linear functions of floor((a + b) / d), and what a lacks to a multiple of d.
Fitted of_quotients(const std::vector<Seen>& atoms, const Seen& target) {
  constexpr std::int64_t kLargest = 64;
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    for (std::int64_t d = 2; d <= kLargest; ++d) {
      for (std::int64_t b = 0; b < d; ++b) {
        Seen quotient(target.size());
        for (std::size_t t = 0; t < target.size(); ++t) quotient[t] = divided(atoms[a][t] + b, d);
        const SizeExpression of_quotient = over(plus(SizeExpression::of_atom(a), b), d);
        if (Fitted made = linear(quotient, target, of_quotient)) return made;
        if (b != d - 1) continue;
        if (gives(target, [&](std::size_t t) { return quotient[t] * d - atoms[a][t]; })) {
          return SizeExpression::made(Kind::kSubtract, times(of_quotient, d),
                                      SizeExpression::of_atom(a));
        }
      }
    }
  }
  return {};
}

}  // namespace

SizeExpression SizeExpression::of_atom(std::size_t atom) {
  SizeExpression made;
  made.kind = Kind::kAtom;
  made.atom = atom;
  return made;
}

SizeExpression SizeExpression::of_number(std::int64_t number) {
  SizeExpression made;
  made.number = number;
  return made;
}

SizeExpression SizeExpression::made(Kind kind, SizeExpression left, SizeExpression right) {
  SizeExpression made;
  made.kind = kind;
  made.parts.push_back(std::move(left));
  made.parts.push_back(std::move(right));
  return made;
}

std::int64_t SizeExpression::value(const std::vector<std::int64_t>& sizes) const {
  if (kind == Kind::kAtom) return sizes[atom];
  if (kind == Kind::kNumber) return number;
  const std::int64_t left = parts[0].value(sizes), right = parts[1].value(sizes);
  if (kind == Kind::kAdd) return left + right;
  if (kind == Kind::kSubtract) return left - right;
  if (kind == Kind::kMultiply) return left * right;
  return divided(left, right);
}

std::optional<SizeExpression> fit_sizes(const std::vector<Seen>& atoms, const Seen& target) {
  for (const auto& attempt : {of_one, of_products, of_sums, of_quotients}) {
    if (Fitted made = attempt(atoms, target)) return made;
  }
  return {};
}

std::optional<ScaledSize> fit_scale(const std::vector<Seen>& atoms,
                                    const std::vector<double>& target) {
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    for (const double power : {1.0, -1.0, 0.5, -0.5}) {
      const double factor = target[0] / std::pow(static_cast<double>(atoms[a][0]), power);
      bool fits = factor != 0 && std::isfinite(factor);
      for (std::size_t t = 0; fits && t < target.size(); ++t) {
        const double value = factor * std::pow(static_cast<double>(atoms[a][t]), power);
        fits = std::abs(value - target[t]) <= 1e-9 * std::abs(target[t]);
      }
      if (fits) return ScaledSize{a, factor, power};
    }
  }
  return {};
}

}  // namespace mezzo::deploy
