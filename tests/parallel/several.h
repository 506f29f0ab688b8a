// Tests that run in several real processes: this program starts itself again, once per rank, under
// our own launcher.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "mezzo/parallel.h"
#include "ranks/launcher.h"

namespace mezzo::parallel::testing_ranks {

/// Registers what every rank does: Rank kSums("sums", [] { start(); EXPECT_...; }). A failed
/// expectation throws there and ends the rank with exit code 1.
struct Rank {
  Rank(const char* name, std::function<void()> work);
};

/// The variable that names the folder where the ranks of a test meet, which its start makes.
constexpr const char* kMeeting = "MEZZO_TEST_MEETING";
/// A folder of its own, for as long as this lives.
class Meeting {
 public:
  Meeting();
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// In a rank: joins the others. The timeout is short, so that nobody waits for long; how far apart
/// they come up counts not, since they first wait until all are there.
void start(std::chrono::milliseconds timeout = std::chrono::seconds(15));
/// ... without that wait, where some are not to come.
void start_at_once(std::chrono::milliseconds timeout);
/// In a rank: tells where it is, for the report of a hang.
void at(const std::string& stage);

struct Run {
  int ranks = 2;
  std::chrono::seconds limit{60};
  std::map<std::string, std::string> environment = {};
};

/// In the test: runs the registered work in so many processes on the loopback.
ranks::LaunchResult run(const std::string& name, const Run& how = {});
/// ... and expects that all end well.
void expect_all_pass(const std::string& name, const Run& how = {});
/// ... and expects that all of them fail in time, `silent` excepted, with this in what each wrote.
void expect_all_report(const std::string& name, const std::string& says, const Run& how = {},
                       int silent = -1);

/// For main(): the rank's work, if the arguments ask for it; its exit code.
std::optional<int> run_as_rank(int argc, char** argv);

}  // namespace mezzo::parallel::testing_ranks
