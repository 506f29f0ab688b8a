// Numbers that keep a program from dividing by zero, and that are zero in float16 themselves.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/insight_diagnosis.h"

namespace mezzo::insight {

/// The part of an operator in `x / (y + 1e-8)`.
enum class EpsilonPart {
  kNone,    // its result has nothing to do with a small number
  kGives,   // its result is at least a small number that it is given
  kKeeps,   // a view, a sum, a multiple: as small as its tensor
  kSpends,  // it has no value at zero, or no slope
};

/// The part of an operator by its name, with or without "aten::" and the mark of in-place ones.
EpsilonPart epsilon_part(std::string_view name);

/// Which of the arguments an operator that spends an epsilon cannot have zero.
std::size_t spent_argument(std::string_view name);

/// How many of an operator's first arguments may be the number that it gives.
std::size_t numbers_in(std::string_view name, std::size_t arguments);

/// Is this number so small that float16 has no use for it in any place?
bool is_epsilon(double number);

/// Which of the arguments of an operator that spends an epsilon decides what it gives of it: a
/// power's exponent, a division's numerator.
std::size_t deciding_argument(std::string_view name);

/// Does the operator fail in float16 where its argument is no more than `eps`? `deciding`: the
/// argument that decides, where it is a number.
bool fails_at(std::string_view name, double eps, std::optional<double> deciding);

/// The number that an operator fills its result with: its argument in `place`, or `number` where it
/// has no such argument.
struct Filling {
  std::optional<std::size_t> place;
  double number = 0;
};

/// The filling of "fill", "full", "ones" and their like; nothing for other operators.
std::optional<Filling> filling_of(std::string_view name);

/// An epsilon on its way: which operator was given it, and which one relies on it.
struct EpsilonUse {
  std::string giver;
  double eps = 0;
  std::string spender;
  // clang-tidy 14 takes the default for a null pointer.
  auto operator<=>(const EpsilonUse&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// A finding "epsilon" for each.
void report_epsilons(const std::set<EpsilonUse>& uses, std::vector<Finding>& into);

}  // namespace mezzo::insight
