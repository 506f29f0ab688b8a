#include "insight/epsilons.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "insight/lint_tensors.h"

namespace mezzo::insight {

namespace {

struct EpsilonRow {
  std::string_view name;
  EpsilonPart part;
  std::size_t spent = 0;
};

constexpr EpsilonPart kGives = EpsilonPart::kGives, kKeeps = EpsilonPart::kKeeps,
                      kSpends = EpsilonPart::kSpends;

constexpr std::array kEpsilonRows{
    EpsilonRow{"add", kGives},
    EpsilonRow{"sub", kGives},
    EpsilonRow{"clamp", kGives},
    EpsilonRow{"clip", kGives},
    EpsilonRow{"clamp_min", kGives},
    EpsilonRow{"maximum", kGives},
    EpsilonRow{"max", kGives},
    EpsilonRow{"fmax", kGives},
    EpsilonRow{"where", kGives},
    EpsilonRow{"masked_fill", kGives},
    EpsilonRow{"threshold", kGives},
    EpsilonRow{"hardtanh", kGives},
    EpsilonRow{"mul", kKeeps},
    EpsilonRow{"multiply", kKeeps},
    EpsilonRow{"neg", kKeeps},
    EpsilonRow{"abs", kKeeps},
    EpsilonRow{"square", kKeeps},
    EpsilonRow{"sum", kKeeps},
    EpsilonRow{"mean", kKeeps},
    EpsilonRow{"prod", kKeeps},
    EpsilonRow{"amin", kKeeps},
    EpsilonRow{"amax", kKeeps},
    EpsilonRow{"cat", kKeeps},
    EpsilonRow{"stack", kKeeps},
    EpsilonRow{"view", kKeeps},
    EpsilonRow{"view_as", kKeeps},
    EpsilonRow{"reshape", kKeeps},
    EpsilonRow{"reshape_as", kKeeps},
    EpsilonRow{"flatten", kKeeps},
    EpsilonRow{"unflatten", kKeeps},
    EpsilonRow{"expand", kKeeps},
    EpsilonRow{"expand_as", kKeeps},
    EpsilonRow{"broadcast_to", kKeeps},
    EpsilonRow{"repeat", kKeeps},
    EpsilonRow{"unsqueeze", kKeeps},
    EpsilonRow{"squeeze", kKeeps},
    EpsilonRow{"t", kKeeps},
    EpsilonRow{"transpose", kKeeps},
    EpsilonRow{"permute", kKeeps},
    EpsilonRow{"movedim", kKeeps},
    EpsilonRow{"select", kKeeps},
    EpsilonRow{"slice", kKeeps},
    EpsilonRow{"narrow", kKeeps},
    EpsilonRow{"index", kKeeps},
    EpsilonRow{"index_select", kKeeps},
    EpsilonRow{"gather", kKeeps},
    EpsilonRow{"contiguous", kKeeps},
    EpsilonRow{"clone", kKeeps},
    EpsilonRow{"detach", kKeeps},
    EpsilonRow{"alias", kKeeps},
    EpsilonRow{"to", kKeeps},
    EpsilonRow{"_to_copy", kKeeps},
    EpsilonRow{"type_as", kKeeps},
    EpsilonRow{"div", kSpends, 1},
    EpsilonRow{"divide", kSpends, 1},
    EpsilonRow{"true_divide", kSpends, 1},
    EpsilonRow{"floor_divide", kSpends, 1},
    EpsilonRow{"remainder", kSpends, 1},
    EpsilonRow{"fmod", kSpends, 1},
    EpsilonRow{"addcdiv", kSpends, 2},
    EpsilonRow{"reciprocal", kSpends},
    EpsilonRow{"rsqrt", kSpends},
    EpsilonRow{"sqrt", kSpends},
    EpsilonRow{"log", kSpends},
    EpsilonRow{"log2", kSpends},
    EpsilonRow{"log10", kSpends},
    EpsilonRow{"xlogy", kSpends, 1},
    EpsilonRow{"pow", kSpends},
};

std::string_view bare_name(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

const EpsilonRow* epsilon_row(std::string_view name) {
  const auto* const found = std::ranges::find(kEpsilonRows, bare_name(name), &EpsilonRow::name);
  return found == kEpsilonRows.end() ? nullptr : found;
}

/// The largest magnitude that an operator gives of an argument of at least `eps`, as far as a
/// number decides it.
double largest_of(std::string_view name, double eps, std::optional<double> deciding) {
  if (name == "reciprocal") return 1 / eps;
  if (name == "rsqrt") return 1 / std::sqrt(eps);
  if (!deciding) return 0;
  if (name == "pow") return std::pow(eps, *deciding);
  const bool divides = name == "div" || name == "divide" || name == "true_divide";
  return divides ? std::fabs(*deciding) / eps : 0;
}

}  // namespace

EpsilonPart epsilon_part(std::string_view name) {
  const EpsilonRow* const row = epsilon_row(name);
  return row == nullptr ? EpsilonPart::kNone : row->part;
}

std::size_t spent_argument(std::string_view name) {
  const EpsilonRow* const row = epsilon_row(name);
  return row == nullptr ? 0 : row->spent;
}

std::size_t numbers_in(std::string_view name, std::size_t arguments) {
  // A factor of the second tensor comes third.
  const std::string_view bare = bare_name(name);
  return bare == "add" || bare == "sub" ? std::min<std::size_t>(arguments, 2) : arguments;
}

bool is_epsilon(double number) {
  return number > 0 && number < 1 / kLargestInHalf;
}

std::size_t deciding_argument(std::string_view name) {
  return spent_argument(name) == 0 ? 1 : 0;
}

bool fails_at(std::string_view name, double eps, std::optional<double> deciding) {
  const std::string_view bare = bare_name(name);
  // A power of zero has no value below 0 and no slope below 1.
  if (bare == "pow" && (!deciding || *deciding >= 1)) return false;
  return eps < kZeroInHalf || largest_of(bare, eps, deciding) > kLargestInHalf;
}

std::optional<Filling> filling_of(std::string_view name) {
  const std::string_view bare = bare_name(name);
  if (bare == "fill" || bare == "full" || bare == "full_like") return Filling{1};
  if (bare == "new_full") return Filling{2};
  if (bare == "ones" || bare == "ones_like" || bare == "new_ones") return Filling{{}, 1};
  return std::nullopt;
}

void report_epsilons(const std::set<EpsilonUse>& uses, std::vector<Finding>& into) {
  for (const EpsilonUse& use : uses) {
    std::ostringstream evidence;
    evidence << "eps = " << use.eps;
    if (use.eps < kZeroInHalf) {
      evidence << " is zero in float16 (O1, O2, O3), and " << use.spender
               << " relies on it where the rest is zero";
    } else {
      evidence << " is too small for float16 (O1, O2, O3): " << use.spender
               << " of it lies beyond 65504";
    }
    into.push_back({"warning", "epsilon", use.giver, evidence.str(),
                    "raise eps to 1e-4, or compute both in float; bfloat16 (O4, O5) holds it"});
  }
}

}  // namespace mezzo::insight
