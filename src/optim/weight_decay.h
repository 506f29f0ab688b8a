// The weight decay inside the options of any optimizer that has one.
#pragma once

#include "mezzo/optim.h"

namespace mezzo::optim {

/// Null where these options have none, or are of a type that is not known here.
double* weight_decay_of(Options&);

}  // namespace mezzo::optim
