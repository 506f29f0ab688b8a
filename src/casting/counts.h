// How the casting layer counts its casts; include/mezzo/cast_counts.h has the totals.
#pragma once

#include <cstdint>

#include "mezzo/cast_counts.h"

namespace mezzo::casting {

void count_weight_casts(std::int64_t count = 1) noexcept;
void count_activation_cast() noexcept;

}  // namespace mezzo::casting
