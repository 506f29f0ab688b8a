// How benchmarks measure and report: ours and a peer in one run, interleaved, with the ratio and
// its spread.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace mezzo::bench {

/// One line of the table and of the JSON file.
struct Result {
  std::string name;
  std::string unit = "seconds";  // "seconds", "instructions", "bytes" or "count"
  double ours = 0;
  double peer = 0;
  std::string peer_name = {};
  double spread = 0;                  // relative: how far the repeats of the ratio lie apart
  std::optional<double> target = {};  // the ratio peer/ours that must be reached
  std::optional<double> bytes = {};   // moved, where bandwidth matters
  std::optional<double> share_of_bandwidth = {};  // of the one measured in the same run

  /// peer/ours: above 1 is ahead. Two zeros are a tie.
  double ratio() const;
};

/// The options of a suite.
struct Settings {
  std::string device = "cpu";
  int repeats = 9;
  std::string only;  // run cases whose names contain this

  bool wants(const std::string& name) const { return name.find(only) != std::string::npos; }
};

/// Collects results: prints each as it comes, writes the JSON lines beside the target and renames
/// them there.
class Report {
 public:
  explicit Report(std::ostream& table) : table_(table) {}
  /// From now on each result is also appended to this file as a JSON line, at once.
  void append_lines_to(const std::string& path) { lines_ = path; }
  void add(const Result&);
  void heading(const std::string&);
  void write_json(const std::string& path) const;
  void write_json(std::ostream& out) const;

 private:
  std::ostream& table_;
  std::string lines_;
  std::vector<Result> results_;
};

/// Seconds per call of two functions, measured in turns after one unmeasured call of each: the
/// minimum of the repeats, each long enough for the clock.
struct Pair {
  double ours;
  double peer;
  double spread;
};
Pair interleave(const std::function<void()>& ours, const std::function<void()>& peer, int repeats);

/// The same of two measurements that give seconds per call.
Pair take_turns(const std::function<double()>& ours, const std::function<double()>& peer,
                int repeats);

}  // namespace mezzo::bench
