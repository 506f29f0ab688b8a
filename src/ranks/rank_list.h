// Ranks as an error names them.
#pragma once

#include <string>
#include <vector>

namespace mezzo::ranks {

/// "0, 2, 5".
inline std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace mezzo::ranks
