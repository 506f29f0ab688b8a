// Mezzo's version, for the preprocessor and for programs. The build system reads it from here.
#pragma once

#include <string>

#include "mezzo/export.h"

#define MEZZO_VERSION_MAJOR 0
#define MEZZO_VERSION_MINOR 1
#define MEZZO_VERSION_PATCH 0

namespace mezzo {

/// The version of the library that was loaded, such as "0.1.0"; the macros are those of the headers
/// that were compiled.
MEZZO_API std::string version();

}  // namespace mezzo
