// Launches of shell scripts, without a store.
#pragma once

#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "ranks/launcher.h"

namespace mezzo::ranks {

using namespace std::chrono_literals;

class NoStore final : public StoreHost {
 public:
  explicit NoStore(std::vector<FailureRecord> records = {}) : records_(std::move(records)) {}
  int port() const override { return 4321; }
  std::vector<FailureRecord> failures(const std::string&) override { return records_; }
  int ended_nodes(const std::string&) override { return ++asked_ < 5 ? 0 : ended_; }

  int asked_ = 0;
  int ended_ = 0;

 private:
  std::vector<FailureRecord> records_;
};

struct Outcome {
  LaunchResult result;
  std::string out, err;
};

struct Times {
  std::chrono::milliseconds report{200};
  std::chrono::milliseconds end{20'000};
};

inline Outcome run(LaunchOptions options, const Times& times = {},
                   const std::vector<FailureRecord>& records = {}) {
  std::ostringstream out;
  std::ostringstream err;
  options.report_time = times.report;
  options.end_time = times.end;
  if (!options.time_limit) options.time_limit = 120s;
  Outcome outcome;
  outcome.result = launch(
      options, [&](const std::string&, int) { return std::make_unique<NoStore>(records); }, out,
      err);
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

inline LaunchOptions shell(int processes, const std::string& script) {
  LaunchOptions options;
  options.processes_per_node = processes;
  options.command = {"sh", "-c", script};
  return options;
}

// A folder of this process alone, whose files tell how far the scripts are.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::path(testing::TempDir()) /
              ("mezzo_launch_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// The command of a script that waits for one of them.
  std::string await(const std::string& name) const {
    return "until [ -e " + (*this / name) + " ]; do sleep 0.02; done; ";
  }
  /// ... and of one that makes it.
  std::string make(const std::string& name) const { return ": > " + (*this / name) + "; "; }

 private:
  std::filesystem::path path_;
};

/// Whether that came true in time, which is long: it ends a hang, no more.
template <class Condition>
bool comes(Condition condition) {
  for (int tries = 0; tries < 6000; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

}  // namespace mezzo::ranks
