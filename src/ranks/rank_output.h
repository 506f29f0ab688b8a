// What one rank writes: whole lines to the terminal with the rank in front, or to files, and the
// last ones kept for the report.
#pragma once

#include <deque>
#include <filesystem>
#include <fstream>
#include <iosfwd>
#include <string>

namespace mezzo::ranks {

class RankOutput {
 public:
  /// With a log directory, lines go to DIR/rank_R.out and DIR/rank_R.err, and to the streams too if
  /// `tee`; without one to the streams alone, as "[rank R] text". Throws Error where a file cannot
  /// be written.
  RankOutput(int rank, const std::filesystem::path& log_directory, bool tee, std::ostream& out,
             std::ostream& err);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  int rank() const noexcept { return rank_; }
  /// Takes text of standard output (0) or error (1), in any pieces.
  void add(int which, const std::string& text);
  /// Writes what has no line end yet.
  void flush();
  /// The last lines of standard error, else of standard output.
  std::string last_lines() const;

 private:
  struct Stream {
    std::ostream* terminal = nullptr;
    std::ofstream file;
    std::string rest;
    std::deque<std::string> last;
  };
  void write(Stream& stream, const std::string& line);

  const int rank_;
  Stream streams_[2];
};

/// The lines of `text`, each four spaces in.
std::string indented(const std::string& text);

}  // namespace mezzo::ranks
