// Options of a conversion as a JSON object, for callers in other languages.
#pragma once

#include <string>

#include "mezzo/convert.h"

namespace mezzo::convert {

/// Members by name, as mezzo/convert_c.h says; what is not named keeps its default. Throws
/// ConfigError for a text that is no object, an unknown name, or a value of another kind.
Options options_from_json(const std::string& text);
Judges judges_from_json(const std::string& text);

}  // namespace mezzo::convert
