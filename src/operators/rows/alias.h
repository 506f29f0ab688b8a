// Names of other systems, and the operators that they mean.
#pragma once

#include <string_view>

namespace mezzo::rows {

struct Alias {
  std::string_view name;
  std::string_view operators;  ///< base names or overloads, separated by spaces
};

/// Operators, and all names of another system that mean them; both separated by spaces.
struct Meaning {
  std::string_view operators, names;
};

}  // namespace mezzo::rows
