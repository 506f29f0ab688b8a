#include "mezzo/error.h"

namespace mezzo {

// Defined here so that each class has its type information in one place, for exceptions that cross
// libraries.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
UnsupportedError::~UnsupportedError() = default;

}  // namespace mezzo
