// Results of the program: one JSON line each, written and flushed as it comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

namespace mezzo::device_check {

/// One check while it runs.
class Check {
 public:
  /// The check fails unless `holds`; the first reason is kept.
  void expect(bool holds, const std::string& otherwise);
  /// The check is skipped, and says why.
  void skip(const std::string& why) { skipped_ = why; }
  void figure(const std::string& name, const nlohmann::ordered_json& value) {
    figures_[name] = value;
  }

 private:
  friend class Results;
  std::string failed_, skipped_;
  nlohmann::ordered_json figures_ = nlohmann::ordered_json::object();
};

/// Writes results and counts them.
class Results {
 public:
  /// Checks that would begin after `seconds` are skipped. `only`: names that contain this run.
  Results(std::ostream& lines, double seconds, std::string only);

  void begin_part(const std::string& name) { part_ = name; }
  /// Ends a part; a part that ran to its end need not run again.
  void end_part(double seconds);
  /// Runs one check. An exception is a failure with its text; the next check runs all the same.
  void check(const std::string& name, const std::function<void(Check&)>& run);
  double seconds_left() const;
  int failed() const { return failed_; }
  int passed() const { return passed_; }

 private:
  void write(const nlohmann::ordered_json& line);

  std::ostream& lines_;
  std::chrono::steady_clock::time_point end_;
  std::string only_, part_;
  int passed_ = 0, failed_ = 0;
  bool out_of_time_ = false;
};

}  // namespace mezzo::device_check
