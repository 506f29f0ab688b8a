// The element types as rows, without LibTorch: the operator table, the kernels and the converter
// use them. Code that decides by a type reads its row; a new low type is a new row with a column.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mezzo {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
};

/// The low types: those that mixed precision computes in. Operators have a class for each.
inline constexpr std::size_t kLowTypeCount = 2;

/// A type's numbers and names.
struct DTypeRow {
  DType dtype;
  std::string_view name;        ///< what users read and write everywhere: "float16"
  std::string_view alias;       ///< LibTorch's short name: "half"
  std::string_view short_name;  ///< "fp16"
  std::string_view torch_name;  ///< as LibTorch prints it: "Half"
  std::int8_t torch_number;     ///< of c10::ScalarType
  std::size_t size;             ///< bytes of an element
  bool is_float;                ///< its numbers have fractions
  int low_column;               ///< place among the low types; -1 for the others
  double largest;               ///< finite; this and what follows are 0 for integers
  double smallest_normal;
  double epsilon;  ///< from 1 to the next larger number
};

namespace dtypes {

consteval DTypeRow floating(DType dtype, std::string_view name, std::string_view alias,
                            std::string_view short_name, std::string_view torch_name,
                            std::int8_t torch_number, std::size_t size, int low_column,
                            double largest, double smallest_normal, double epsilon) {
  return {.dtype = dtype,
          .name = name,
          .alias = alias,
          .short_name = short_name,
          .torch_name = torch_name,
          .torch_number = torch_number,
          .size = size,
          .is_float = true,
          .low_column = low_column,
          .largest = largest,
          .smallest_normal = smallest_normal,
          .epsilon = epsilon};
}

consteval DTypeRow whole(DType dtype, std::string_view name, std::string_view alias,
                         std::string_view torch_name, std::int8_t torch_number, std::size_t size) {
  return {.dtype = dtype,
          .name = name,
          .alias = alias,
          .short_name = name,
          .torch_name = torch_name,
          .torch_number = torch_number,
          .size = size,
          .is_float = false,
          .low_column = -1,
          .largest = 0,
          .smallest_normal = 0,
          .epsilon = 0};
}

}  // namespace dtypes

/// All rows, in the order of the enumeration.
inline constexpr std::array kDTypes{
    dtypes::floating(DType::kFloat32, "float32", "float", "fp32", "Float", 6, 4, -1, 0x1.fffffep127,
                     0x1p-126, 0x1p-23),
    dtypes::floating(DType::kFloat16, "float16", "half", "fp16", "Half", 5, 2, 0, 65504, 0x1p-14,
                     0x1p-10),
    dtypes::floating(DType::kBFloat16, "bfloat16", "bf16", "bf16", "BFloat16", 15, 2, 1, 0x1.fep127,
                     0x1p-126, 0x1p-7),
    dtypes::floating(DType::kFloat64, "float64", "double", "fp64", "Double", 7, 8, -1,
                     0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-52),
    dtypes::whole(DType::kInt8, "int8", "char", "Char", 1, 1),
    dtypes::whole(DType::kInt16, "int16", "short", "Short", 2, 2),
    dtypes::whole(DType::kInt32, "int32", "int", "Int", 3, 4),
    dtypes::whole(DType::kInt64, "int64", "long", "Long", 4, 8),
    dtypes::whole(DType::kUInt8, "uint8", "byte", "Byte", 0, 1),
    dtypes::whole(DType::kUInt16, "uint16", "uint16", "UInt16", 27, 2),
    dtypes::whole(DType::kUInt32, "uint32", "uint32", "UInt32", 28, 4),
    dtypes::whole(DType::kUInt64, "uint64", "uint64", "UInt64", 29, 8),
    dtypes::whole(DType::kBool, "bool", "bool", "Bool", 11, 1),
};

constexpr const DTypeRow& row_of(DType dtype) noexcept {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

/// The low types by their columns.
inline constexpr std::array<DType, kLowTypeCount> kLowTypes = [] {
  std::array<DType, kLowTypeCount> lows{};
  for (const DTypeRow& row : kDTypes) {
    if (row.low_column >= 0) lows[static_cast<std::size_t>(row.low_column)] = row.dtype;
  }
  return lows;
}();

/// "float32", "bfloat16", ...: the names that users write and read everywhere.
std::string_view name_of(DType) noexcept;

/// The type of that name; "half", "float", "double", "fp16" and LibTorch's short names count too.
/// Unknown: nothing.
std::optional<DType> parse_dtype(std::string_view name) noexcept;

/// Bytes of one element.
std::size_t size_of(DType) noexcept;

/// Is it one of the low types?
constexpr bool is_low(DType dtype) noexcept {
  return row_of(dtype).low_column >= 0;
}

/// "float16 or bfloat16": the names of the low types for a message.
std::string low_type_names(std::string_view between = " or ");

/// "float16, bfloat16, float32, float64": names of the types that a network may have, for a
/// message.
std::string floating_type_names(std::string_view DTypeRow::*name,
                                std::string_view before_last = ", ");

}  // namespace mezzo
