// The one bridge between our dtype names and LibTorch's.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "core/dtype.h"

namespace mezzo {

/// LibTorch's name of a type.
at::ScalarType scalar_type_of(DType) noexcept;

/// Our name of a type; nothing for complex numbers and the rest that we do not name.
std::optional<DType> dtype_of(at::ScalarType) noexcept;

/// Our name of float16 or bfloat16. Any other type: ConfigError "[where] ... expected float16 or
/// bfloat16".
DType low_dtype_of(at::ScalarType, std::string_view where);

}  // namespace mezzo
