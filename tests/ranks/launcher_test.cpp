#include "ranks/launcher.h"

#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "mezzo/error.h"

namespace mezzo::ranks {
namespace {

using testing::HasSubstr;
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

Outcome run(LaunchOptions options, std::vector<FailureRecord> records = {}) {
  std::ostringstream out;
  std::ostringstream err;
  options.report_time = 200ms;
  options.end_time = 300ms;
  Outcome outcome;
  outcome.result = launch(
      options, [&](const std::string&, int) { return std::make_unique<NoStore>(records); }, out,
      err);
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

LaunchOptions shell(int processes, const std::string& script) {
  LaunchOptions options;
  options.processes_per_node = processes;
  options.command = {"sh", "-c", script};
  return options;
}

TEST(Launch, GivesEveryRankItsVariables) {
  const Outcome o = run(shell(2,
                              "echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT "
                              "$TORCHELASTIC_USE_AGENT_STORE"));
  EXPECT_EQ(o.result.exit_code, 0);
  EXPECT_THAT(o.out, HasSubstr("[rank 0] 0/2 0 127.0.0.1:4321 True\n"));
  EXPECT_THAT(o.out, HasSubstr("[rank 1] 1/2 1 127.0.0.1:4321 True\n"));
  EXPECT_TRUE(o.result.report.empty());
}

TEST(Launch, NumbersTheRanksOfLaterNodes) {
  LaunchOptions options = shell(2, "");
  options.nodes = 3;
  options.node_rank = 1;
  const auto variables = rank_variables(options, 1, 9, "run");
  EXPECT_EQ(variables.at("RANK"), "3");
  EXPECT_EQ(variables.at("WORLD_SIZE"), "6");
  EXPECT_EQ(variables.at("LOCAL_RANK"), "1");
  EXPECT_EQ(variables.at("GROUP_RANK"), "1");
}

TEST(Launch, KeepsTheStoreUntilOtherNodesHaveEnded) {
  LaunchOptions options = shell(1, "exit $CODE");
  options.nodes = 3;
  options.master_port = 4321;
  options.report_time = 100ms;
  options.nodes_time = 400ms;
  for (const int ended : {1, 2}) {
    for (const int code : {0, 3}) {
      const auto host = [&](const std::string&, int) {
        auto made = std::make_unique<NoStore>();
        made->ended_ = ended;
        return made;
      };
      options.environment["CODE"] = std::to_string(code);
      std::ostringstream text;
      const auto began = std::chrono::steady_clock::now();
      const LaunchResult result = launch(options, host, text, text);
      EXPECT_EQ(result.exit_code, code);
      const auto took = std::chrono::steady_clock::now() - began;
      if (ended == 1) {
        EXPECT_GE(took, code == 0 ? 400ms : 100ms);
      }
      EXPECT_LT(took, 10s);
    }
  }
}

TEST(Launch, OtherNodesSayWhenTheirRanksHaveEnded) {
  LaunchOptions options = shell(2, "exit $RANK");
  options.nodes = 2;
  options.master_port = 4321;
  for (const int node : {0, 1}) {
    options.node_rank = node;
    options.nodes_time = 100ms;
    std::vector<std::string> told;
    std::ostringstream text;
    launch(
        options, [](const std::string&, int) { return std::make_unique<NoStore>(); }, text, text,
        [&](const std::string& address, int port, const std::string& run_id) {
          told.push_back(address + ' ' + std::to_string(port) + ' ' + run_id);
        });
    if (node == 0) {
      EXPECT_THAT(told, testing::IsEmpty());
    } else {
      EXPECT_THAT(told, testing::ElementsAre("127.0.0.1 4321 mezzo-4321"));
    }
  }
}

TEST(Launch, KeepsLinesWholeAndStreamsApart) {
  const Outcome o = run(shell(1, "printf 'a'; sleep 0.1; printf 'b\\nc'; echo wrong >&2"));
  EXPECT_EQ(o.out, "[rank 0] ab\n[rank 0] c\n");
  EXPECT_EQ(o.err, "[rank 0] wrong\n");
}

TEST(Launch, TheFirstFailureEndsTheOthersAndIsReported) {
  const auto began = std::chrono::steady_clock::now();
  const Outcome o =
      run(shell(3, "if [ $RANK = 1 ]; then echo it broke >&2; exit 7; else exec sleep 60; fi"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
  EXPECT_EQ(o.result.exit_code, 7);
  ASSERT_TRUE(o.result.failure.has_value());
  EXPECT_EQ(o.result.failure->rank, 1);
  EXPECT_THAT(o.result.report, HasSubstr("rank 1"));
  EXPECT_THAT(o.result.report, HasSubstr("exit code 7"));
  EXPECT_THAT(o.result.report, HasSubstr("it broke"));
  EXPECT_TRUE(o.result.ranks[0].ended_by_us);
  EXPECT_EQ(o.result.ranks[0].end.signal, SIGTERM);
}

TEST(Launch, ShowsAllWhoEndedByThemselves) {
  const Outcome o =
      run(shell(3, "if [ $RANK = 2 ]; then sleep 0.1; fi; echo rank $RANK broke; exit 5"));
  EXPECT_EQ(o.result.exit_code, 5);
  for (const char* words : {"    rank 0 broke\n", "    rank 1 broke\n", "    rank 2 broke\n"}) {
    EXPECT_THAT(o.result.report, HasSubstr(words));
  }
}

TEST(Launch, ARankThatIgnoresSigtermIsKilled) {
  const Outcome o =
      run(shell(2, "trap '' TERM; if [ $RANK = 0 ]; then exit 3; fi; while :; do sleep 0.1; done"));
  EXPECT_EQ(o.result.exit_code, 3);
  EXPECT_EQ(o.result.ranks[1].end.signal, SIGKILL);
}

TEST(Launch, ASignalIsReportedByName) {
  const Outcome o = run(shell(2, "if [ $RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 60"));
  EXPECT_EQ(o.result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(o.result.report, HasSubstr("SIGSEGV"));
}

TEST(Launch, TheTimeLimitNamesWhoStillRan) {
  LaunchOptions options = shell(2, "echo at the gate; if [ $RANK = 1 ]; then exec sleep 60; fi");
  options.time_limit = 500ms;
  const Outcome o = run(options);
  EXPECT_EQ(o.result.exit_code, 124);
  EXPECT_THAT(o.result.report, HasSubstr("rank 0 had ended"));
  EXPECT_THAT(o.result.report, HasSubstr("rank 1 (process"));
  EXPECT_THAT(o.result.report, HasSubstr("at the gate"));
}

TEST(Launch, WritesAFilePerRank) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "mezzo_launch_logs";
  for (const bool tee : {false, true}) {
    LaunchOptions options = shell(2, "echo hello from $RANK");
    options.log_directory = folder;
    options.tee = tee;
    const Outcome o = run(options);
    EXPECT_EQ(o.out.empty(), !tee);
    std::ifstream file(folder / "rank_1.out");
    std::string line;
    std::getline(file, line);
    EXPECT_EQ(line, "hello from 1");
  }
  std::filesystem::remove_all(folder);
}

TEST(Launch, PassesSignalsOn) {
  std::thread later([] {
    std::this_thread::sleep_for(500ms);
    std::raise(SIGINT);
  });
  const Outcome o = run(shell(2, "trap 'echo got it; exit 0' INT; while :; do sleep 0.05; done"));
  later.join();
  EXPECT_EQ(o.result.exit_code, 128 + SIGINT);
  EXPECT_THAT(o.out, HasSubstr("[rank 0] got it"));
  EXPECT_THAT(o.out, HasSubstr("[rank 1] got it"));
}

TEST(Launch, PassesOnASignalThatAsksForSomethingAndGoesOn) {
  std::thread later([] {
    std::this_thread::sleep_for(500ms);
    std::raise(SIGUSR1);
  });
  const Outcome o = run(shell(2,
                              "trap 'echo a checkpoint; exit 0' USR1; while :; do sleep 0.05; "
                              "done"));
  later.join();
  EXPECT_EQ(o.result.exit_code, 0) << o.result.report;
  EXPECT_THAT(o.out, HasSubstr("[rank 0] a checkpoint"));
  EXPECT_THAT(o.out, HasSubstr("[rank 1] a checkpoint"));
}

TEST(Launch, ABrokenPipeEndsTheRanks) {
  std::thread later([] {
    std::this_thread::sleep_for(500ms);
    std::raise(SIGPIPE);
  });
  const Outcome o = run(shell(2, "trap 'echo ending; exit 0' TERM; while :; do sleep 0.05; done"));
  later.join();
  EXPECT_EQ(o.result.exit_code, 128 + SIGPIPE);
  EXPECT_THAT(o.out, HasSubstr("[rank 1] ending"));
}

TEST(Launch, HoldsAHangUpThatWasIgnored) {
  // As under nohup.
  const auto before = std::signal(SIGHUP, SIG_IGN);
  std::thread later([] {
    std::this_thread::sleep_for(300ms);
    kill(getpid(), SIGHUP);
  });
  const Outcome o = run(shell(1, "kill -HUP $$; sleep 0.7; echo still here"));
  later.join();
  std::signal(SIGHUP, before);
  EXPECT_EQ(o.result.exit_code, 0) << o.result.report;
  EXPECT_EQ(o.out, "[rank 0] still here\n");
}

TEST(Launch, WhoWritesWithoutEndKeepsNobodyWaiting) {
  LaunchOptions options = shell(2, "if [ $RANK = 0 ]; then exec yes; fi; sleep 0.2; exit 6");
  options.log_directory = std::filesystem::path(testing::TempDir()) / "mezzo_launch_flood";
  options.time_limit = 30s;
  const Outcome o = run(options);
  EXPECT_EQ(o.result.exit_code, 6) << o.result.report;
  std::filesystem::remove_all(options.log_directory);
}

TEST(Launch, AVeryLongLineIsShownInParts) {
  const Outcome o = run(shell(1, "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"));
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), 'x'), 200000);
  // Of at most 64 KiB, whether they come one by one or all at once.
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 5);
  EXPECT_THAT(o.out, HasSubstr("\n[rank 0] end\n"));
}

TEST(Launch, LogsThatCannotBeWrittenAreAnErrorThatNamesThem) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "mezzo_no_folder";
  std::ofstream(file) << "a file";
  LaunchOptions options = shell(1, "true");
  options.log_directory = file / "logs";
  try {
    run(options);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot make the folder --log-dir"));
    EXPECT_THAT(e.what(), HasSubstr("mezzo_no_folder/logs"));
  }
  std::filesystem::remove(file);
}

TEST(Launch, AMissingProgramIsAnError) {
  LaunchOptions options;
  options.command = {"/no/such/program"};
  try {
    run(options);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("/no/such/program"));
    EXPECT_THAT(e.what(), HasSubstr("No such file"));
  }
}

TEST(Launch, RefusesImpossibleOptions) {
  LaunchOptions no_command;
  EXPECT_THROW(run(no_command), ConfigError);
  LaunchOptions options = shell(0, "");
  EXPECT_THROW(run(options), ConfigError);
  options = shell(1, "");
  options.nodes = 2;
  EXPECT_THROW(run(options), ConfigError);
  options.nodes = 1;
  options.node_rank = 1;
  EXPECT_THROW(run(options), ConfigError);
  options.node_rank = 0;
  options.tee = true;
  EXPECT_THROW(run(options), ConfigError);
  options.tee = false;
  options.master_address = "no-such-host.invalid";
  EXPECT_THROW(run(options), ConfigError);
}

// The number that a script has written there, once it has.
int number_in(const std::filesystem::path& file) {
  for (int tries = 0; tries < 1000; ++tries) {
    std::ifstream in(file);
    std::string line;
    if (std::getline(in, line) && !in.eof()) return std::stoi(line);
    std::this_thread::sleep_for(10ms);
  }
  throw std::runtime_error("nothing came to " + file.string());
}

// One that has ended and waits to be reaped runs no more.
bool runs(int process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(in, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.at(name_end + 2) != 'Z';
}

TEST(Launch, LeavesNothingBehindWhenItIsKilled) {
  const std::string path = testing::TempDir() + "mezzo_killed_" + std::to_string(getpid()) + "_";
  const LaunchOptions options =
      shell(2, "sleep 1000 & echo $! > " + path + "$RANK; echo $$ > " + path + "sh$RANK; wait");
  const pid_t launcher = fork();
  if (launcher == 0) {
    run(options);
    _exit(0);
  }
  std::vector<int> processes;
  for (const char* const name : {"0", "1", "sh0", "sh1"}) {
    processes.push_back(number_in(path + name));
    EXPECT_TRUE(runs(processes.back())) << name;
    std::filesystem::remove(path + name);
  }
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  const auto some_run = [&] { return std::ranges::any_of(processes, runs); };
  for (int tries = 0; tries < 500 && some_run(); ++tries) std::this_thread::sleep_for(10ms);
  for (const int process : processes) {
    EXPECT_FALSE(runs(process)) << process;
    if (runs(process)) kill(process, SIGKILL);
  }
}

RankEnd failed(int rank) {
  RankEnd end;
  end.rank = rank;
  end.end.code = 1;
  return end;
}

TEST(RootCause, IsTheFirstWhoEndedWithoutReportingAFailureOfItsPeers) {
  EXPECT_EQ(root_cause({failed(0), failed(2), failed(1)}, {{0, "lost 2"}, {1, "lost 2"}}), 1U);
}

TEST(RootCause, ElseTheFirstWhoReported) {
  EXPECT_EQ(root_cause({failed(0), failed(1)}, {{1, "timeout"}, {0, "closed"}}), 1U);
}

TEST(RootCause, ElseTheFirstWhoEnded) {
  EXPECT_EQ(root_cause({failed(2), failed(1)}, {}), 0U);
}

}  // namespace
}  // namespace mezzo::ranks
