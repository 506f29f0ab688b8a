#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "cli/program.h"

namespace mezzo::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A dead process that nobody has asked about yet does not run.
bool runs(const std::string& process) {
  const std::string status = content_of("/proc/" + process + "/stat");
  return !status.empty() && status.find(") Z ") == std::string::npos;
}

/// A folder with a script that every rank runs.
class LaunchCommand : public testing::Test {
 protected:
  LaunchCommand() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LaunchCommand() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string script(const std::string& text) const {
    std::ofstream(path("rank.sh")) << text << '\n';
    return "sh " + path("rank.sh");
  }
  Outcome launch(const std::string& options, const std::string& text,
                 const std::string& arguments = "") const {
    return mezzo("launch " + options + " -- " + script(text) + " " + arguments);
  }
  /// The command of a script that waits until both ranks' children have written their numbers.
  std::string await_children() const {
    return "until [ -s " + path("child.0") + " ] && [ -s " + path("child.1") +
           " ]; do sleep 0.02; done; ";
  }
  /// The processes whose numbers these files hold end soon.
  void expect_gone(std::initializer_list<const char*> files) const {
    for (const char* name : files) {
      std::string process = content_of(path(name));
      process = process.substr(0, process.find('\n'));
      EXPECT_FALSE(process.empty()) << name;
      for (int i = 0; i < 1000 && runs(process); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      EXPECT_FALSE(runs(process)) << name;
    }
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("mezzo_launch_" + std::to_string(getpid()));
};

TEST_F(LaunchCommand, StartsSoManyProcessesAndPutsTheRankBeforeEveryLine) {
  const Outcome outcome = launch("--nproc-per-node 3",
                                 "echo rank $RANK of $WORLD_SIZE: \"$1\"; echo wrong >&2", "'a b'");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(outcome.out,
                HasSubstr(std::string("[rank ") + rank + "] rank " + rank + " of 3: a b\n"));
    EXPECT_THAT(outcome.err, HasSubstr(std::string("[rank ") + rank + "] wrong\n"));
  }
}

TEST_F(LaunchCommand, APortIsThereAndFreeAgainAfterwards) {
  const Outcome first = launch("", "echo $MASTER_ADDR $MASTER_PORT");
  ASSERT_EQ(first.code, kDone) << first.err;
  const std::string port = std::to_string(std::stoi(first.out.substr(first.out.rfind(' '))));
  EXPECT_THAT(first.out, HasSubstr("127.0.0.1 "));
  EXPECT_GT(std::stoi(port), 0);
  const Outcome again = launch("--master-port " + port, "echo $MASTER_PORT");
  EXPECT_EQ(again.code, kDone) << again.err;
}

TEST_F(LaunchCommand, GivesTheProgramItsArgumentsAsTheyAre) {
  const Outcome outcome = mezzo("launch -- echo --json '' '[1,2]' --nnodes=3 -- y");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.out, "[rank 0] --json  [1,2] --nnodes=3 -- y\n");
}

TEST_F(LaunchCommand, TheFirstFailureIsReportedAndIsTheExitCode) {
  const Outcome outcome = launch("--nproc-per-node 3",
                                 "echo rank $RANK is here\n"
                                 "if [ $RANK = 1 ]; then echo the disk is full >&2; exit 9; fi\n"
                                 "sleep 60");
  EXPECT_EQ(outcome.code, 9);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (process "));
  EXPECT_THAT(outcome.err, HasSubstr("ended with exit code 9"));
  EXPECT_THAT(outcome.err, HasSubstr("    the disk is full\n"));
}

TEST_F(LaunchCommand, ASignalIsNamed) {
  const Outcome outcome = launch("--nproc-per-node 2", "[ $RANK = 0 ] || kill -ABRT $$; sleep 60");
  EXPECT_EQ(outcome.code, 128 + SIGABRT);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (process "));
  EXPECT_THAT(outcome.err, HasSubstr("was ended by SIGABRT"));
}

TEST_F(LaunchCommand, LeavesNoProcessBehind) {
  // The script's own child ignores the signal, and holds the pipe.
  const Outcome outcome = launch("--nproc-per-node 2 --grace 0.2",
                                 "(trap '' TERM; exec sleep 60) &\n"
                                 "echo $$ > " +
                                     path("rank.") + "$RANK; echo $! > " + path("child.") +
                                     "$RANK\n"
                                     "if [ $RANK = 1 ]; then " +
                                     await_children() + "exit 5; fi; wait");
  EXPECT_EQ(outcome.code, 5);
  expect_gone({"rank.0", "rank.1", "child.0", "child.1"});
}

TEST_F(LaunchCommand, PassesSignalsOnAndEndsWithThem) {
  // The shell tells its process, and then is the launcher; both ranks are awaited.
  const std::string command =
      "echo $$; exec " + std::string(MEZZO_PROGRAM) + " launch --nproc-per-node 2 -- " +
      script("trap 'echo saved; exit 0' INT; echo ready; while :; do sleep 0.05; done") + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  int ready = 0;
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    text += line;
    if (std::string_view(line).ends_with(" ready\n") && ++ready == 2) {
      kill(std::stoi(text), SIGINT);
    }
  }
  pclose(pipe);
  EXPECT_THAT(text, HasSubstr("[rank 0] saved"));
  EXPECT_THAT(text, HasSubstr("[rank 1] saved"));
  EXPECT_THAT(text, HasSubstr("ended by SIGINT"));
}

TEST_F(LaunchCommand, WritesFilesPerRankAndOnRequestTheTerminalToo) {
  const Outcome quiet = launch("--nproc-per-node 2 --log-dir " + path("logs/here"),
                               "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(quiet.code, kDone) << quiet.err;
  EXPECT_EQ(quiet.out + quiet.err, "");
  EXPECT_EQ(content_of(path("logs/here/rank_1.out")), "out 1\n");
  EXPECT_EQ(content_of(path("logs/here/rank_0.err")), "err 0\n");
  const Outcome both =
      launch("--log-dir " + path("logs/here") + " --tee", "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(both.out, "[rank 0] out 0\n");
  EXPECT_EQ(content_of(path("logs/here/rank_0.out")), "out 0\n");
}

TEST_F(LaunchCommand, ALogOnAFullDiskIsAFailureOfItsOwn) {
  std::filesystem::create_directories(path("full"));
  std::filesystem::create_symlink("/dev/full", path("full/rank_0.out"));
  const Outcome outcome = launch("--log-dir " + path("full"), "echo hi");
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("rank_0.out': No space left on device"));
  EXPECT_THAT(outcome.err, HasSubstr("all ranks succeeded, but a log is not whole"));
}

TEST_F(LaunchCommand, AnOptionsBadValueIsNamed) {
  for (const char* option : {"--nproc-per-node", "--grace"}) {
    const Outcome outcome = mezzo(std::string("launch ") + option + " x -- true");
    EXPECT_EQ(outcome.code, kWrongUsage);
    EXPECT_THAT(outcome.err, HasSubstr(option));
    EXPECT_THAT(outcome.err, Not(HasSubstr("'--'")));
  }
}

TEST_F(LaunchCommand, AVeryShortTimeLimitIsStillOne) {
  EXPECT_EQ(launch("--time-limit 0.0005 --grace 0.2", "sleep 60").code, 124);
}

TEST_F(LaunchCommand, TellsHowEveryRankEndedAsJson) {
  const Outcome outcome =
      launch("--nproc-per-node 2 --json", "echo hello; [ $RANK = 0 ] || exit 4; sleep 60");
  EXPECT_EQ(outcome.code, 4);
  const auto told = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(told["exit_code"], 4);
  EXPECT_EQ(told["failure"]["rank"], 1);
  EXPECT_EQ(told["failure"]["ended_by_launcher"], false);
  EXPECT_EQ(told["failure"]["last_lines"], "hello\n");
  EXPECT_EQ(told["ranks"].size(), 2U);
  EXPECT_EQ(told["ranks"][0]["ended_by_launcher"], true);
  EXPECT_EQ(told["ranks"][0]["signal"], SIGTERM);
  EXPECT_THAT(outcome.err, HasSubstr("[rank 0] hello\n"));
}

TEST_F(LaunchCommand, TellsOfRanksThatWroteBytesThatAreNoText) {
  const Outcome outcome = launch("--json", "printf 'a\\377b\\n'");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  const auto told = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(told["ranks"][0]["last_lines"],
            "a\xEF\xBF\xBD"
            "b\n");
}

TEST_F(LaunchCommand, LeavesNobodyWhenItsReaderGoes) {
  const Outcome outcome = mezzo("launch --nproc-per-node 2 --grace 0.2 -- " +
                                script("sleep 60 & echo $! > " + path("child.") + "$RANK; " +
                                       await_children() + "while :; do echo on; sleep 0.05; done") +
                                " | head -n 3");
  EXPECT_THAT(outcome.out, HasSubstr("on\n"));
  expect_gone({"child.0", "child.1"});
}

TEST_F(LaunchCommand, TheTimeLimitNamesWhoHangs) {
  const Outcome outcome = launch("--nproc-per-node 2 --time-limit 3",
                                 "echo at the gate; if [ $RANK = 1 ]; then sleep 60; fi");
  EXPECT_EQ(outcome.code, 124);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (process "));
  EXPECT_THAT(outcome.err, HasSubstr("still ran; it wrote last:\n    at the gate\n"));
}

TEST_F(LaunchCommand, RanksReadNothingFromTheTerminal) {
  const Outcome outcome = launch("--nproc-per-node 2", "cat; echo done");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[rank 1] done"));
}

TEST_F(LaunchCommand, WrongUsageIsExitCodeTwo) {
  for (const char* arguments :
       {"", "--nproc-per-node 2", "--nproc-per-node 2 --", "true", "true --json", "true x",
        "--nproc-per-node 0 -- true", "--nproc-per-node two -- true", "--nproc 2 -- true",
        "--bogus -- true", "--node-rank 1 -- true", "--nnodes 2 -- true",
        "--nnodes 2 --master-port 29500 -- true", "--nnodes 2 --master-addr 127.0.0.1 -- true",
        "--tee -- true", "--master-port 70000 -- true", "--grace -1 -- true",
        "--master-addr no..such.host -- true"}) {
    const Outcome outcome = mezzo(std::string("launch ") + arguments);
    EXPECT_EQ(outcome.code, kWrongUsage) << arguments << '\n' << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, Not(testing::IsEmpty())) << arguments;
  }
}

TEST_F(LaunchCommand, AProgramThatIsNotThereIsNamed) {
  const Outcome outcome = mezzo("launch --nproc-per-node 2 -- /no/such/program");
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("cannot start '/no/such/program': No such file"));
}

}  // namespace
}  // namespace mezzo::cli
