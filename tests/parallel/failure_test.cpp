// The fate of other ranks when one fails: a clear error in time, never a hang.
#include <gmock/gmock.h>

#include <csignal>
#include <thread>

#include "parallel/several.h"
#include "platform/network.h"

namespace mezzo::parallel {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::expect_all_report;
using testing_ranks::Rank;
using testing_ranks::run;
using testing_ranks::start;
using testing_ranks::start_at_once;
using namespace std::chrono_literals;

int starters_rank() {
  return std::stoi(std::getenv("RANK"));
}

const Rank kAbsent("absent", [] {
  if (starters_rank() == 1) return;
  start_at_once(6s);
});

TEST(Failures, AMissingRankIsNamedAtTheStart) {
  const auto result = run("absent", {.ranks = 3});
  for (int r : {0, 2}) {
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(r)].end.code, 1);
    EXPECT_THAT(result.ranks[static_cast<std::size_t>(r)].last_lines,
                HasSubstr("ranks that did not come: 1"));
  }
}

const Rank kDies("dies", [] {
  start(10s);
  barrier();
  if (rank() == 1) std::raise(SIGKILL);
  for (int i = 0; i < 100; ++i) world().all_reduce(torch::ones({100000}));
});

TEST(Failures, ADeadRankIsNamed) {
  expect_all_report("dies", "ranks that did not report: 1", {.ranks = 3}, 1);
  const auto result = run("dies", {.ranks = 2});
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->rank, 1);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.report, HasSubstr("rank 0 reported"));
}

const Rank kOneThrows("throws", [] {
  start(10s);
  if (rank() == 0) throw std::runtime_error("a mistake of rank 0");
  barrier();
});

TEST(Failures, TheLaunchersReportNamesTheRankThatThrew) {
  const auto result = run("throws", {.ranks = 3});
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_EQ(result.failure->rank, 0);
  EXPECT_THAT(result.report, HasSubstr("a mistake of rank 0"));
}

const Rank kSleeps("sleeps", [] {
  start(2s);
  barrier();
  if (rank() == 2) {
    at("asleep");
    std::this_thread::sleep_for(7s);
    return;
  }
  barrier();
});

TEST(Failures, ASleepingRankIsNamedAfterTheTimeout) {
  const auto result = run("sleeps", {.ranks = 3});
  for (int r : {0, 1}) {
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(r)].end.code, 1);
    EXPECT_THAT(result.ranks[static_cast<std::size_t>(r)].last_lines,
                HasSubstr("ranks that did not report: 2"));
  }
}

const Rank kAfterFailure("after a failure", [] {
  start(10s);
  if (rank() == 1) return;
  EXPECT_THROW(barrier(), Error);
  try {
    barrier();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("failed before"));
    throw;
  }
});

TEST(Failures, AFailedGroupStaysFailed) {
  expect_all_report("after a failure", "start the program again", {.ranks = 2}, 1);
}

// A training in which something happens to rank 1, at a stage that the test names.
enum class Stage { kBefore, kDuring, kAfter };

void train_until(const std::string& what, Stage stage, int steps) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(20, 50), torch::nn::Tanh(), torch::nn::Linear(50, 50),
                            torch::nn::Tanh(), torch::nn::Linear(50, 1));
  DistributedDataParallel ddp(net, {.message_size = 1});
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  const auto happen = [&] {
    at("it happens");
    if (what == "kill") std::raise(SIGKILL);
    if (what == "exit") std::_Exit(0);
    if (what == "sleep") std::this_thread::sleep_for(8s);
    if (what == "throw") throw std::runtime_error("a mistake of rank 1");
  };
  for (int step = 0; step < steps; ++step) {
    at("step " + std::to_string(step));
    const bool now = rank() == 1 && step == 2;
    ddp.zero_grad();
    const at::Tensor loss = ddp.call([&](torch::nn::SequentialImpl& impl) {
      at::Tensor h = impl[1]->as<torch::nn::Tanh>()->forward(
          impl[0]->as<torch::nn::Linear>()->forward(torch::randn({4, 20})));
      // The last layers' gradients are on their way when this one's comes.
      if (now && stage == Stage::kDuring) {
        h.register_hook([&](const at::Tensor&) { happen(); });
      }
      h = impl[3]->as<torch::nn::Tanh>()->forward(impl[2]->as<torch::nn::Linear>()->forward(h));
      return impl[4]->as<torch::nn::Linear>()->forward(h).square().mean();
    });
    if (now && stage == Stage::kBefore) happen();
    loss.backward();
    if (now && stage == Stage::kAfter) happen();
    optimizer.step();
  }
}

const Rank kTraining("training with a failure", [] {
  start(2s);
  train_until(std::getenv("HAPPENS"), static_cast<Stage>(std::stoi(std::getenv("STAGE"))), 30);
});

ranks::LaunchResult training(const std::string& what, Stage stage) {
  return run(
      "training with a failure",
      {.ranks = 3,
       .limit = 60s,
       .environment = {{"HAPPENS", what}, {"STAGE", std::to_string(static_cast<int>(stage))}}});
}

TEST(Failures, ARankThatDiesSleepsOrLeavesInATrainingIsNamedByTheOthers) {
  for (const Stage stage : {Stage::kBefore, Stage::kDuring, Stage::kAfter}) {
    for (const std::string what : {"kill", "sleep", "exit", "throw"}) {
      SCOPED_TRACE(what + " at stage " + std::to_string(static_cast<int>(stage)));
      const auto result = training(what, stage);
      for (std::size_t r : {0U, 2U}) {
        const ranks::RankEnd& end = result.ranks[r];
        EXPECT_FALSE(end.ended_by_us) << "rank " << r << " hung\n" << result.report;
        EXPECT_EQ(end.end.code, 1) << "rank " << r << " signal " << end.end.signal << '\n'
                                   << end.last_lines;
        // A rank that throws in the middle of a backward still sends the rest, marked as broken.
        const bool marked = what == "throw" && stage == Stage::kDuring;
        EXPECT_THAT(end.last_lines, HasSubstr(marked ? "broke off on another rank"
                                                     : "ranks that did not report: 1"));
      }
      ASSERT_TRUE(result.failure.has_value());
      if (what == "kill") {
        EXPECT_EQ(result.failure->rank, 1) << result.report;
        EXPECT_EQ(result.exit_code, 128 + SIGKILL);
      }
      if (what == "throw") {
        EXPECT_THAT(result.report, HasSubstr("a mistake of rank 1"));
      }
    }
  }
}

const Rank kFewerBatches("fewer batches without join", [] {
  start(2s);
  train_until("nothing", Stage::kBefore, rank() == 1 ? 3 : 5);
});

TEST(Failures, ARankWithFewerBatchesIsAnErrorForTheOthersAndNoHang) {
  expect_all_report("fewer batches without join", "ranks that did not report: 1", {.ranks = 3}, 1);
}

// Without a launcher: each process finds the others by an address alone.
InitOptions by_address(int port, int rank, int size) {
  InitOptions options;
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = size;
  options.timeout = 2s;
  return options;
}

std::string error_of(const InitOptions& options) {
  try {
    init_process_group(options);
    destroy_process_group();
    return "nothing was thrown";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Failures, AWrongMasterAddressIsAnErrorInTime) {
  EXPECT_THAT(error_of(by_address(1, 1, 2)),
              HasSubstr("nobody answers at the master address 127.0.0.1:1"));
  InitOptions options = by_address(1, 1, 2);
  options.init_method = "tcp://no..such.host:1";
  EXPECT_THAT(error_of(options), HasSubstr("cannot resolve the master address 'no..such.host'"));
}

TEST(Failures, APortInUseIsAnError) {
  int port = 0;
  const int taken = platform::listen_at("127.0.0.1", port);
  EXPECT_THAT(error_of(by_address(port, 0, 2)), HasSubstr("is the port in use?"));
  platform::close_descriptor(taken);
}

TEST(Failures, AnotherProgramAtTheMastersPortIsAnErrorInTime) {
  // It takes connections and never answers.
  int port = 0;
  const int taken = platform::listen_at("127.0.0.1", port);
  EXPECT_THAT(error_of(by_address(port, 1, 2)), HasSubstr("is no store"));
  platform::close_descriptor(taken);
}

TEST(Failures, AMeetingFileInNoFolderIsAnErrorAtOnce) {
  InitOptions options = by_address(1, 0, 2);
  options.init_method = "file:///no/such/folder/file";
  EXPECT_THAT(error_of(options), HasSubstr("there is no folder /no/such/folder"));
}

const Rank kStoreVanishes("store vanishes", [] {
  // Rank 0 hosts the store itself, and leaves while the others wait for one that never comes.
  const int rank = starters_rank();
  InitOptions options = by_address(std::stoi(std::getenv("STORE_PORT")), rank, 4);
  options.timeout = rank == 0 ? 6s : 30s;
  init_process_group(options);
});

TEST(Failures, AStoreThatVanishesIsAnErrorInTime) {
  int port = 0;
  platform::close_descriptor(platform::listen_at("127.0.0.1", port));
  const auto result =
      run("store vanishes", {.ranks = 3, .environment = {{"STORE_PORT", std::to_string(port)}}});
  EXPECT_THAT(result.ranks[0].last_lines, HasSubstr("ranks that did not come: 3"));
  for (int r : {1, 2}) {
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(r)].end.code, 1);
    EXPECT_THAT(result.ranks[static_cast<std::size_t>(r)].last_lines,
                AnyOf(HasSubstr("store vanished"), HasSubstr("nobody answers")));
  }
}

const Rank kHostDies("store vanishes in a training", [] {
  InitOptions options = by_address(std::stoi(std::getenv("STORE_PORT")), starters_rank(), 3);
  options.timeout = 8s;
  init_process_group(options);
  at("started");
  torch::nn::Linear net(3, 1);
  DistributedDataParallel ddp(net);
  for (int step = 0; step < 30; ++step) {
    if (rank() == 0 && step == 3) std::raise(SIGKILL);
    ddp.zero_grad();
    ddp(torch::randn({4, 3})).sum().backward();
  }
});

TEST(Failures, AStoreThatVanishesInATrainingIsAnErrorInTime) {
  int port = 0;
  platform::close_descriptor(platform::listen_at("127.0.0.1", port));
  expect_all_report("store vanishes in a training", "its host (rank 0 or the launcher) is gone",
                    {.ranks = 3, .environment = {{"STORE_PORT", std::to_string(port)}}}, 0);
}

}  // namespace
}  // namespace mezzo::parallel
