// Mezzo's version, for the preprocessor and for programs. The build system reads it from here.
#pragma once

#include <string>

#include "mezzo/export.h"

/// A new one may rename what is public.
#define MEZZO_VERSION_MAJOR 0
/// A new one adds to what is public; before 1.0 it may rename too.
#define MEZZO_VERSION_MINOR 1
/// A new one mends.
#define MEZZO_VERSION_PATCH 0

namespace mezzo {

/// The version of the library that was loaded, such as "0.1.0"; the macros are those of the headers
/// that were compiled.
MEZZO_API std::string version();

}  // namespace mezzo
