// A name of another system, and the operators that it means.
#pragma once

#include <string_view>

namespace mezzo::rows {

struct Alias {
  std::string_view name;
  std::string_view operators;  ///< base names or overloads, separated by spaces
};

}  // namespace mezzo::rows
