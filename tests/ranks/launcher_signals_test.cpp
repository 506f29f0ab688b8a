// The fate of a launcher's ranks when it is sent a signal, or is killed.
#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "ranks/launcher_runs.h"

namespace mezzo::ranks {
namespace {

using testing::HasSubstr;

// Sends this process a signal once the ranks are ready, which both files tell.
class Later {
 public:
  Later(const Folder& folder, int signal)
      : thread_([&folder, signal] {
          EXPECT_TRUE(comes([&] {
            return std::filesystem::exists(folder / "0") && std::filesystem::exists(folder / "1");
          }));
          std::raise(signal);
        }) {}
  ~Later() { thread_.join(); }

 private:
  std::thread thread_;
};

// Two ranks that run until they are sent the signal, and then say the word.
Outcome run_until(int signal, const std::string& name, const std::string& word) {
  const Folder folder;
  const Later later(folder, signal);
  return run(shell(2, "trap 'echo " + word + "; exit 0' " + name + "; " + folder.make("$RANK") +
                          "while :; do sleep 0.05; done"));
}

TEST(Launch, PassesSignalsOn) {
  const Outcome o = run_until(SIGINT, "INT", "got it");
  EXPECT_EQ(o.result.exit_code, 128 + SIGINT);
  EXPECT_THAT(o.out, HasSubstr("[rank 0] got it"));
  EXPECT_THAT(o.out, HasSubstr("[rank 1] got it"));
}

TEST(Launch, PassesOnASignalThatAsksForSomethingAndGoesOn) {
  const Outcome o = run_until(SIGUSR1, "USR1", "a checkpoint");
  EXPECT_EQ(o.result.exit_code, 0) << o.result.report;
  EXPECT_THAT(o.out, HasSubstr("[rank 0] a checkpoint"));
  EXPECT_THAT(o.out, HasSubstr("[rank 1] a checkpoint"));
}

TEST(Launch, ABrokenPipeEndsTheRanks) {
  const Outcome o = run_until(SIGPIPE, "TERM", "ending");
  EXPECT_EQ(o.result.exit_code, 128 + SIGPIPE);
  EXPECT_THAT(o.out, HasSubstr("[rank 1] ending"));
}

TEST(Launch, HoldsAHangUpThatWasIgnored) {
  // As under nohup.
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const Folder folder;
  std::thread later([&] {
    EXPECT_TRUE(comes([&] { return std::filesystem::exists(folder / "ready"); }));
    kill(getpid(), SIGHUP);
    std::ofstream(folder / "sent");
  });
  const Outcome o = run(shell(1, "kill -HUP $$; " + folder.make("ready") + folder.await("sent") +
                                     "sleep 0.3; echo still here"));
  later.join();
  std::signal(SIGHUP, before);
  EXPECT_EQ(o.result.exit_code, 0) << o.result.report;
  EXPECT_EQ(o.out, "[rank 0] still here\n");
}

// One that has ended and waits to be reaped runs no more.
bool runs(int process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(in, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.at(name_end + 2) != 'Z';
}

// A launcher of its own process; it and what it has started end with the test, however that ends.
class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : id_(fork()) {
    if (id_ != 0) return;
    run(options);
    _exit(0);
  }
  ~Launcher() {
    end();
    for (const int process : processes_) {
      if (runs(process)) kill(process, SIGKILL);
    }
  }
  void end() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    id_ = -1;
  }
  /// Has started a process whose number a script writes there.
  void expect(const std::string& file) {
    int number = 0;
    const bool is_there = comes([&] {
      std::ifstream in(file);
      std::string line;
      if (std::getline(in, line) && !in.eof()) number = std::stoi(line);
      return number != 0;
    });
    ASSERT_TRUE(is_there) << "nothing came to " << file;
    EXPECT_TRUE(runs(number)) << file;
    processes_.push_back(number);
  }
  const std::vector<int>& processes() const { return processes_; }

 private:
  pid_t id_;
  std::vector<int> processes_;
};

TEST(Launch, LeavesNothingBehindWhenItIsKilled) {
  const Folder folder;
  Launcher launcher(shell(2, "sleep 1000 & echo $! > " + (folder / "$RANK") + "; echo $$ > " +
                                 (folder / "sh$RANK") + "; wait"));
  for (const char* const name : {"0", "1", "sh0", "sh1"}) launcher.expect(folder / name);
  launcher.end();
  comes([&] { return std::ranges::none_of(launcher.processes(), runs); });
  for (const int process : launcher.processes()) EXPECT_FALSE(runs(process)) << process;
}

}  // namespace
}  // namespace mezzo::ranks
