#include "casting/counts.h"
#include "mezzo/cast_counts.h"

namespace mezzo {

CastCounts cast_counts() noexcept {
  const casting::CastCounts counts = casting::cast_counts();
  return {counts.weight_casts, counts.activation_casts};
}

}  // namespace mezzo
