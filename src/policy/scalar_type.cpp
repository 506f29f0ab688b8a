#include "policy/scalar_type.h"

#include "core/raise.h"

namespace mezzo {

at::ScalarType scalar_type_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kUInt8:
      return at::kByte;
    case DType::kUInt16:
      return at::kUInt16;
    case DType::kUInt32:
      return at::kUInt32;
    case DType::kUInt64:
      return at::kUInt64;
    case DType::kBool:
      return at::kBool;
  }
  return at::ScalarType::Undefined;
}

std::optional<DType> dtype_of(at::ScalarType type) noexcept {
  constexpr auto kLast = static_cast<std::uint8_t>(DType::kBool);
  for (std::uint8_t i = 0; i <= kLast; ++i) {
    if (scalar_type_of(static_cast<DType>(i)) == type) return static_cast<DType>(i);
  }
  return std::nullopt;
}

DType low_dtype_of(at::ScalarType type, std::string_view where) {
  if (type == at::kHalf) return DType::kFloat16;
  if (type == at::kBFloat16) return DType::kBFloat16;
  raise<ConfigError>(where, "the low type is ", c10::toString(type),
                     "; expected float16 (Half) or bfloat16 (BFloat16)");
}

}  // namespace mezzo
