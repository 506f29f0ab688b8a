#include <algorithm>
#include <array>
#include <string_view>

#include "operators/operators.h"

namespace mezzo {
namespace {

bool is_dunder(std::string_view base) {
  return base.starts_with("__") && base.ends_with("__");
}

bool has_word_out(std::string_view overload) {
  while (!overload.empty()) {
    const std::size_t end = overload.find('_');
    if (overload.substr(0, end) == "out") return true;
    if (end == std::string_view::npos) break;
    overload.remove_prefix(end + 1);
  }
  return false;
}

/// Forms with out= that are named by what they write.
bool names_a_result(std::string_view overload) {
  constexpr std::array kResults{"L",
                                "OutScalar_Other",
                                "OutScalar_Self",
                                "OutTensor",
                                "Q",
                                "U",
                                "X",
                                "a",
                                "dim_max",
                                "dim_min",
                                "eigvals",
                                "eigenvalues",
                                "grad_input",
                                "inverse",
                                "names_dim_max",
                                "output",
                                "names_dim_min",
                                "result",
                                "sign",
                                "values",
                                "dim_values",
                                "values_stable",
                                "names_dim_values",
                                "dimname_values",
                                "dimname_values_stable"};
  return std::ranges::find(kResults, overload) != kResults.end();
}

std::optional<std::size_t> first_of_base(std::string_view base) {
  const auto rows = operators();
  const auto row = std::ranges::lower_bound(rows, base, {}, &Operator::name);
  if (row == rows.end() || row->base() != base) return std::nullopt;
  return static_cast<std::size_t>(row - rows.begin());
}

std::optional<std::size_t> row_of_out(std::string_view base, std::string_view overload) {
  constexpr std::array<std::string_view, 4> kEnds{"_out", "_values", "_max", "_min"};
  for (const std::string_view end : kEnds) {
    if (!overload.ends_with(end)) continue;
    overload.remove_suffix(end.size());
    break;
  }
  constexpr std::string_view kOut = "Out";
  if (overload.starts_with(kOut)) overload.remove_prefix(kOut.size());
  const std::string functional = std::string(base) + "." + std::string(overload);
  if (const auto row = index_of(functional)) return row;
  return first_of_base(base);
}

}  // namespace

std::optional<Found> find(std::string_view overload) noexcept {
  if (const auto row = index_of(overload)) return Found{*row, Form::kFunctional};
  const std::size_t dot = overload.find('.');
  const std::string_view base = overload.substr(0, dot);
  const std::string_view rest =
      dot == std::string_view::npos ? std::string_view{} : overload.substr(dot + 1);
  if (base.ends_with('_') && !is_dunder(base)) {
    std::string functional(base.substr(0, base.size() - 1));
    if (!rest.empty()) (functional += '.') += rest;
    if (const auto row = index_of(functional)) return Found{*row, Form::kInPlace};
    return std::nullopt;
  }
  if (!has_word_out(rest) && !names_a_result(rest)) return std::nullopt;
  if (const auto row = row_of_out(base, rest)) return Found{*row, Form::kOut};
  return std::nullopt;
}

}  // namespace mezzo
