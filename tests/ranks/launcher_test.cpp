#include "ranks/launcher.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "mezzo/error.h"
#include "ranks/launcher_runs.h"

namespace mezzo::ranks {
namespace {

using testing::HasSubstr;

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
      EXPECT_LT(took, 60s);
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
  EXPECT_LT(std::chrono::steady_clock::now() - began, 50s);
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
      run(shell(3, "if [ $RANK = 2 ]; then sleep 0.1; fi; echo rank $RANK broke; exit 5"),
          {.report = 20s});
  EXPECT_EQ(o.result.exit_code, 5);
  for (const char* words : {"    rank 0 broke\n", "    rank 1 broke\n", "    rank 2 broke\n"}) {
    EXPECT_THAT(o.result.report, HasSubstr(words));
  }
}

TEST(Launch, ARankThatIgnoresSigtermIsKilled) {
  const Folder folder;
  const Outcome o =
      run(shell(2, "if [ $RANK = 0 ]; then " + folder.await("deaf") + "exit 3; fi; trap '' TERM; " +
                       folder.make("deaf") + "while :; do sleep 0.1; done"),
          {.end = 300ms});
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
  options.time_limit = 3s;
  const Outcome o = run(options);
  EXPECT_EQ(o.result.exit_code, 124);
  EXPECT_THAT(o.result.report, HasSubstr("rank 0 had ended"));
  EXPECT_THAT(o.result.report, HasSubstr("rank 1 (process"));
  EXPECT_THAT(o.result.report, HasSubstr("at the gate"));
}

TEST(Launch, WritesAFilePerRank) {
  const Folder folder;
  for (const bool tee : {false, true}) {
    LaunchOptions options = shell(2, "echo hello from $RANK");
    options.log_directory = folder / "logs";
    options.tee = tee;
    const Outcome o = run(options);
    EXPECT_EQ(o.out.empty(), !tee);
    std::ifstream file(folder / "logs/rank_1.out");
    std::string line;
    std::getline(file, line);
    EXPECT_EQ(line, "hello from 1");
  }
}

TEST(Launch, WhoWritesWithoutEndKeepsNobodyWaiting) {
  const Folder folder;
  LaunchOptions options = shell(2, "if [ $RANK = 0 ]; then exec yes; fi; sleep 0.2; exit 6");
  options.log_directory = folder / "flood";
  const Outcome o = run(options);
  EXPECT_EQ(o.result.exit_code, 6) << o.result.report;
}

TEST(Launch, AVeryLongLineIsShownInParts) {
  const Outcome o = run(shell(1, "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"));
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), 'x'), 200000);
  // Pieces of at most 64 KiB, whether they come one by one or all at once.
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 5);
  EXPECT_THAT(o.out, HasSubstr("\n[rank 0] end\n"));
}

TEST(Launch, LogsThatCannotBeWrittenAreAnErrorThatNamesThem) {
  const Folder folder;
  std::ofstream(folder / "no_folder") << "a file";
  LaunchOptions options = shell(1, "true");
  options.log_directory = folder / "no_folder/logs";
  try {
    run(options);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot make the folder --log-dir"));
    EXPECT_THAT(e.what(), HasSubstr("/no_folder/logs"));
  }
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
  options.master_address = "no..such.host";
  EXPECT_THROW(run(options), ConfigError);
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
