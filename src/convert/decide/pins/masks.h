// Masks: what is added to scores before their softmax, -1e9 where nothing is to be seen.
#pragma once

#include <vector>

#include "convert/decide/pin_context.h"

namespace mezzo::convert {

/// The values, one flag each, that are added to scores and may hold numbers beyond the low type's
/// range: a caller gives them, or they are made with such a number. Rounding them makes no mask of
/// -1e9 but one of minus infinity, under which a row that is masked whole has no softmax.
std::vector<bool> far_masks(const Graph&, const Constants&, Element low);

}  // namespace mezzo::convert
