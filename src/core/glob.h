// Patterns of names with `*` and `?`.
#pragma once

#include <string>
#include <string_view>

namespace mezzo {

/// The regular expression (ECMAScript) that matches what the glob matches: `*` any text, `?` one
/// character, all else itself.
std::string expression_of_glob(std::string_view glob);

}  // namespace mezzo
