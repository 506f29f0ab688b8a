#include "device_check/results.h"

#include <iostream>

namespace mezzo::device_check {
namespace {

constexpr std::size_t kLongestReason = 4000;  // a stack says enough in these

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void Check::expect(bool holds, const std::string& otherwise) {
  if (!holds && failed_.empty()) failed_ = otherwise.empty() ? "it does not hold" : otherwise;
}

Results::Results(std::ostream& lines, double seconds, std::string only)
    : lines_(lines),
      end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(seconds))),
      only_(std::move(only)) {}

double Results::seconds_left() const {
  return std::chrono::duration<double>(end_ - std::chrono::steady_clock::now()).count();
}

void Results::write(const nlohmann::ordered_json& line) {
  lines_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

void Results::end_part(double seconds) {
  if (!out_of_time_ && only_.empty())
    write({{"part", part_}, {"status", "finished"}, {"seconds", seconds}});
}

void Results::check(const std::string& name, const std::function<void(Check&)>& run) {
  if (name.find(only_) == std::string::npos) return;
  Check one;
  const auto begin = std::chrono::steady_clock::now();
  if (seconds_left() <= 0) {
    one.skip("no time is left");
    out_of_time_ = true;
  } else {
    try {
      run(one);
    } catch (const std::exception& error) {
      one.expect(false, error.what());
    }
  }
  const bool failed = !one.failed_.empty();
  const bool skipped = !failed && !one.skipped_.empty();
  nlohmann::ordered_json line{{"part", part_},
                              {"test", name},
                              {"status", failed    ? "failed"
                                         : skipped ? "skipped"
                                                   : "passed"},
                              {"seconds", seconds_since(begin)}};
  if (failed) line["why"] = one.failed_.substr(0, kLongestReason);
  if (skipped) line["why"] = one.skipped_;
  if (!one.figures_.empty()) line["figures"] = one.figures_;
  write(line);
  passed_ += !failed && !skipped;
  failed_ += failed;
  if (failed) std::cerr << "FAILED " << part_ << ": " << name << ": " << one.failed_ << std::endl;
}

}  // namespace mezzo::device_check
