// Answers of a search in a file: a search that was interrupted goes on where it stopped.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mezzo::search {

/// Which of the candidates stay in float.
using Selection = std::vector<bool>;

/// The answers that a search has, in memory and, if it has a path, in a file.
class Journal {
 public:
  /// Reads `path`, which may be empty: then nothing is read or written. Answers for another purpose
  /// or other candidates are dropped, as is a last line that was cut off.
  Journal(std::filesystem::path path, const std::string& purpose,
          const std::vector<std::string>& candidates);

  std::optional<bool> find(const Selection&) const;
  /// Throws Error if the file cannot be written.
  void add(const Selection&, bool good);
  /// The search is over: removes the file.
  void close();

 private:
  std::filesystem::path path_;
  std::string heading_;
  bool is_begun_ = false;  // does the file hold our heading?
  std::map<Selection, bool> answers_;
};

}  // namespace mezzo::search
