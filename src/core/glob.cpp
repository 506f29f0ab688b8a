#include "core/glob.h"

namespace mezzo {

std::string expression_of_glob(std::string_view glob) {
  std::string expression;
  for (const char c : glob) {
    if (c == '*') {
      expression += ".*";
    } else if (c == '?') {
      expression += '.';
    } else {
      if (std::string_view("\\^$.|()[]{}+/").find(c) != std::string_view::npos) expression += '\\';
      expression += c;
    }
  }
  return expression;
}

}  // namespace mezzo
