#include "parallel/several.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

extern "C" mezzo::ranks::StoreHost* mezzo_host_store(const char* address, int port);

namespace mezzo::parallel::testing_ranks {
namespace {

std::map<std::string, std::function<void()>>& works() {
  static std::map<std::string, std::function<void()>> all;
  return all;
}

std::string program;

// Until every rank has come here, or much time has gone.
void meet() {
  const char* const folder = std::getenv(kMeeting);
  const char* const rank = std::getenv("RANK");
  const char* const size = std::getenv("WORLD_SIZE");
  if (folder == nullptr || rank == nullptr || size == nullptr) return;
  const auto came = [&](const std::string& other) { return std::filesystem::path(folder) / other; };
  std::ofstream(came(rank)).put('\n');
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  for (int other = 0; other < std::stoi(size); ++other) {
    while (!std::filesystem::exists(came(std::to_string(other))) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

}  // namespace

Meeting::Meeting() {
  static int count = 0;
  path_ = testing::TempDir() + "mezzo_meeting_" + std::to_string(getpid()) + "_" +
          std::to_string(count++);
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

Meeting::~Meeting() {
  std::filesystem::remove_all(path_);
}

Rank::Rank(const char* name, std::function<void()> work) {
  works()[name] = std::move(work);
}

void start(std::chrono::milliseconds timeout) {
  at("waiting for all processes");
  meet();
  start_at_once(timeout);
}

void start_at_once(std::chrono::milliseconds timeout) {
  at("init_process_group");
  InitOptions options;
  options.timeout = timeout;
  init_process_group(options);
  at("started");
}

void at(const std::string& stage) {
  std::cout << "at: " << stage << std::endl;
}

ranks::LaunchResult run(const std::string& name, const Run& how) {
  ranks::LaunchOptions options;
  options.command = {program, "--rank-work", name};
  options.processes_per_node = how.ranks;
  options.environment = how.environment;
  const Meeting meeting;
  options.environment[kMeeting] = meeting.path();
  options.environment["OMP_NUM_THREADS"] = "1";
  options.time_limit = how.limit;
  // The others must end by themselves: that is what is tested.
  options.report_time = how.limit;
  std::ostringstream out;
  std::ostringstream err;
  const auto host = [](const std::string& address, int port) {
    return std::unique_ptr<ranks::StoreHost>(mezzo_host_store(address.c_str(), port));
  };
  ranks::LaunchResult result = ranks::launch(options, host, out, err);
  if (testing::Test::HasFailure()) std::cerr << out.str() << err.str();
  return result;
}

void expect_all_pass(const std::string& name, const Run& how) {
  const ranks::LaunchResult result = run(name, how);
  EXPECT_EQ(result.exit_code, 0) << name << ":\n" << result.report;
}

void expect_all_report(const std::string& name, const std::string& says, const Run& how,
                       int silent) {
  const ranks::LaunchResult result = run(name, how);
  EXPECT_NE(result.exit_code, 0) << name << ": nobody failed";
  for (const ranks::RankEnd& end : result.ranks) {
    if (end.rank == silent) continue;
    EXPECT_FALSE(end.ended_by_us) << name << ": rank " << end.rank << " hung\n" << result.report;
    EXPECT_EQ(end.end.code, 1) << "rank " << end.rank << " signal " << end.end.signal << '\n'
                               << end.last_lines;
    EXPECT_THAT(end.last_lines, testing::HasSubstr(says)) << "rank " << end.rank;
  }
}

std::optional<int> run_as_rank(int argc, char** argv) {
  program = argv[0];
  if (argc != 3 || std::string(argv[1]) != "--rank-work") return std::nullopt;
  testing::GTEST_FLAG(throw_on_failure) = true;
  const auto work = works().find(argv[2]);
  if (work == works().end()) {
    std::cerr << "no work '" << argv[2] << "'\n";
    return 2;
  }
  try {
    work->second();
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << failure.what() << std::endl;
    return 1;
  }
}

}  // namespace mezzo::parallel::testing_ranks
