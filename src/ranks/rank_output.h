// The output of one rank: whole lines to the terminal with the rank in front, or as it is to files,
// and the last lines kept for the report.
#pragma once

#include <deque>
#include <filesystem>
#include <fstream>
#include <iosfwd>
#include <string>
#include <string_view>

namespace mezzo::ranks {

class RankOutput {
 public:
  /// With a log directory, all goes to DIR/rank_R.out and DIR/rank_R.err as it comes, and to the
  /// streams too if `tee`; without one to the streams alone, as lines "[rank R] text" of at most
  /// 64 KiB. Throws Error if a file cannot be made.
  RankOutput(int rank, const std::filesystem::path& log_directory, bool tee, std::ostream& out,
             std::ostream& err);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  int rank() const noexcept { return rank_; }
  /// Takes text of standard output (0) or error (1), in any pieces. Says once on `err` where a file
  /// cannot take it; the terminal still does.
  void add(int which, const std::string& text);
  /// Shows what has no line end yet.
  void flush();
  /// The last lines of standard error, else of standard output.
  std::string last_lines() const;
  /// Could a file not take what came?
  bool has_lost() const noexcept { return has_lost_; }

 private:
  struct Stream {
    std::ostream* terminal = nullptr;
    std::string path;
    std::ofstream file;
    std::string rest;
    std::deque<std::string> last;
  };
  void log(Stream& stream, const std::string& text);
  void extend(Stream& stream, std::string_view text);
  void show(Stream& stream, const std::string& line);

  const int rank_;
  std::ostream& err_;
  bool has_lost_ = false;
  Stream streams_[2];
};

/// The lines of `text`, each four spaces in.
std::string indented(const std::string& text);

}  // namespace mezzo::ranks
