// Columns of text for terminals.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace mezzo::cli {

/// Rows of cells under a heading. Columns are as wide as their widest cell; the last one is not
/// padded.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heading) : rows_{std::move(heading)} {}

  /// As many cells as the heading has.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  void print(std::ostream&) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mezzo::cli
