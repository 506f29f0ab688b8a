#include "core/dtype.h"

#include <algorithm>
#include <vector>

namespace mezzo {
namespace {

constexpr bool rows_stand_in_order() {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_stand_in_order(), "rows stand in the order of the enumeration");
static_assert(std::ranges::count_if(kDTypes, [](const DTypeRow& row) {
                return row.low_column >= 0;
              }) == kLowTypeCount);
static_assert(
    [] {
      for (std::size_t i = 0; i < kLowTypes.size(); ++i) {
        if (row_of(kLowTypes[i]).low_column != static_cast<int>(i)) return false;
      }
      return true;
    }(),
    "each low type has a column of its own");

std::string joined(const std::vector<std::string_view>& names, std::string_view between,
                   std::string_view before_last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? before_last : between;
    text += names[i];
  }
  return text;
}

}  // namespace

std::string_view name_of(DType dtype) noexcept {
  return row_of(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  const auto* const row = std::ranges::find_if(kDTypes, [&](const DTypeRow& each) {
    return each.name == name || each.alias == name || each.short_name == name;
  });
  if (row == kDTypes.end()) return std::nullopt;
  return row->dtype;
}

std::size_t size_of(DType dtype) noexcept {
  return row_of(dtype).size;
}

std::string low_type_names(std::string_view between) {
  std::vector<std::string_view> names;
  names.reserve(kLowTypes.size());
  for (const DType low : kLowTypes) names.push_back(name_of(low));
  return joined(names, between, between);
}

std::string floating_type_names(std::string_view DTypeRow::*name, std::string_view before_last) {
  std::vector<std::string_view> names;
  names.reserve(kDTypes.size());
  for (const DType low : kLowTypes) names.push_back(row_of(low).*name);
  for (const DTypeRow& row : kDTypes) {
    if (row.is_float && row.low_column < 0) names.push_back(row.*name);
  }
  return joined(names, ", ", before_last);
}

}  // namespace mezzo
