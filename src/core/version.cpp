#include "mezzo/version.h"

#define MEZZO_TEXT_OF(x) #x
#define MEZZO_TEXT(x) MEZZO_TEXT_OF(x)

namespace mezzo {

std::string version() {
  return MEZZO_TEXT(MEZZO_VERSION_MAJOR) "." MEZZO_TEXT(MEZZO_VERSION_MINOR) "." MEZZO_TEXT(
      MEZZO_VERSION_PATCH);
}

}  // namespace mezzo
