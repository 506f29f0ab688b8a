// Names of element types that need no LibTorch: the operator table, the kernels and the converter
// use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// "float32", "bfloat16", ...: the names that users write and read everywhere.
std::string_view name_of(DType) noexcept;

/// The type of that name; "half", "float", "double" and LibTorch's short names count too. Unknown:
/// nothing.
std::optional<DType> parse_dtype(std::string_view name) noexcept;

/// Bytes of one element.
std::size_t size_of(DType) noexcept;

/// float16 and bfloat16: the types that mixed precision computes in.
bool is_low(DType) noexcept;

}  // namespace mezzo
