// The one bridge between our rows of element types and LibTorch's types. Header only: the module
// itself needs no LibTorch.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string_view>

#include "core/dtype.h"
#include "core/raise.h"

namespace mezzo {

/// LibTorch's name of a type. ConfigError for a number that is none of the enumeration.
constexpr at::ScalarType scalar_type_of(DType dtype) {
  if (static_cast<std::size_t>(dtype) >= kDTypes.size()) {
    raise<ConfigError>("dtype", "there is no type of the number ", static_cast<int>(dtype));
  }
  return static_cast<at::ScalarType>(row_of(dtype).torch_number);
}

namespace dtypes {

/// Rows by LibTorch's numbers; null for complex numbers and the rest that we do not name.
inline constexpr auto kByTorchNumber = [] {
  std::array<const DTypeRow*, static_cast<std::size_t>(at::ScalarType::NumOptions) + 1> rows{};
  for (const DTypeRow& row : kDTypes) rows[static_cast<std::uint8_t>(row.torch_number)] = &row;
  return rows;
}();

}  // namespace dtypes

/// The row of a type; null for complex numbers and the rest that we do not name.
constexpr const DTypeRow* row_of(at::ScalarType type) noexcept {
  const auto number = static_cast<std::size_t>(type);
  return number < dtypes::kByTorchNumber.size() ? dtypes::kByTorchNumber[number] : nullptr;
}

/// Our name of a type; nothing for complex numbers and the rest that we do not name.
constexpr std::optional<DType> dtype_of(at::ScalarType type) noexcept {
  const DTypeRow* const row = row_of(type);
  return row == nullptr ? std::nullopt : std::optional(row->dtype);
}

/// Is it one of the low types?
constexpr bool is_low(at::ScalarType type) noexcept {
  const DTypeRow* const row = row_of(type);
  return row != nullptr && row->low_column >= 0;
}

/// Is it a real floating-point type that a network may have: a low one, float or double?
constexpr bool is_network_type(at::ScalarType type) noexcept {
  const DTypeRow* const row = row_of(type);
  return row != nullptr && row->is_float;
}

/// Is it float or low: what mixed precision moves between?
constexpr bool is_float_or_low(at::ScalarType type) noexcept {
  return type == at::kFloat || is_low(type);
}

/// Our name of a low type. Any other type: ConfigError "[where] ... expected float16 (Half) or
/// bfloat16 (BFloat16)".
inline DType low_dtype_of(at::ScalarType type, std::string_view where) {
  if (is_low(type)) return row_of(type)->dtype;
  std::string expected;
  for (const DType low : kLowTypes) {
    if (!expected.empty()) expected += " or ";
    ((expected += row_of(low).name) += " (") += row_of(low).torch_name;
    expected += ')';
  }
  raise<ConfigError>(where, "the low type is ", c10::toString(type), "; expected ", expected);
}

// The numbers of the rows are LibTorch's.
static_assert(scalar_type_of(DType::kFloat32) == at::kFloat);
static_assert(scalar_type_of(DType::kFloat16) == at::kHalf);
static_assert(scalar_type_of(DType::kBFloat16) == at::kBFloat16);
static_assert(scalar_type_of(DType::kFloat64) == at::kDouble);
static_assert(scalar_type_of(DType::kInt8) == at::kChar);
static_assert(scalar_type_of(DType::kInt16) == at::kShort);
static_assert(scalar_type_of(DType::kInt32) == at::kInt);
static_assert(scalar_type_of(DType::kInt64) == at::kLong);
static_assert(scalar_type_of(DType::kUInt8) == at::kByte);
static_assert(scalar_type_of(DType::kUInt16) == at::kUInt16);
static_assert(scalar_type_of(DType::kUInt32) == at::kUInt32);
static_assert(scalar_type_of(DType::kUInt64) == at::kUInt64);
static_assert(scalar_type_of(DType::kBool) == at::kBool);

}  // namespace mezzo
