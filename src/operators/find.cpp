#include <algorithm>

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

std::optional<std::size_t> first_of_base(std::string_view base) {
  const auto rows = operators();
  const auto row = std::ranges::lower_bound(rows, base, {}, &Operator::name);
  if (row == rows.end() || row->base() != base) return std::nullopt;
  return static_cast<std::size_t>(row - rows.begin());
}

std::optional<std::size_t> row_of_out(std::string_view base, std::string_view overload) {
  constexpr std::string_view kEnd = "_out";
  if (overload.ends_with(kEnd)) {
    overload.remove_suffix(kEnd.size());
    const std::string functional = std::string(base) + "." + std::string(overload);
    if (const auto row = index_of(functional)) return row;
  }
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
  if (!has_word_out(rest)) return std::nullopt;
  if (const auto row = row_of_out(base, rest)) return Found{*row, Form::kOut};
  return std::nullopt;
}

}  // namespace mezzo
