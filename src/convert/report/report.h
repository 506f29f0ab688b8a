// Texts that reports and other places share.
#pragma once

#include <string>

#include "mezzo/convert.h"

namespace mezzo::convert {

/// "SQNR 31.2 dB, 0.004 of its range", or that it is not finite.
std::string text_of(const LocalError&);

}  // namespace mezzo::convert
