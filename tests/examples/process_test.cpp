#include "support/process.h"

#include <gtest/gtest.h>
#include <mezzo/error.h>

#include <fstream>

namespace examples {
namespace {

TEST(RunAndWait, GivesTheExitCode) {
  EXPECT_EQ(run_and_wait("/bin/sh", {"-c", "exit 0"}), 0);
  EXPECT_EQ(run_and_wait("/bin/sh", {"-c", "exit 7"}), 7);
  EXPECT_EQ(run_and_wait("/bin/sh", {"-c", "kill -9 $$"}), 128 + 9);
  EXPECT_THROW(run_and_wait("/nowhere/program", {}), mezzo::Error);
}

TEST(RunAndWait, MakesOpenMpThreadsWaitPassively) {
  EXPECT_EQ(run_and_wait("/bin/sh", {"-c", "test \"$OMP_WAIT_POLICY\" = passive"}), 0);
}

TEST(TemporaryFolder, GoesAwayWithItsContent) {
  std::filesystem::path path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    std::ofstream(path / "file") << "content";
    EXPECT_TRUE(std::filesystem::exists(path / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(RequireWritable, LeavesNothingBehind) {
  const TemporaryFolder folder;
  require_writable(folder.path() / "report.json");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(require_writable(folder.path() / "none" / "report.json"), mezzo::Error);
  EXPECT_THROW(require_writable(folder.path()), mezzo::Error);
}

TEST(MemoryPeak, SeesWhatWasHeldInBetween) {
  constexpr std::size_t kBytes = 64 << 20;
  const MemoryPeak peak;
  { const std::vector<char> held(kBytes, 1); }
  EXPECT_GE(peak.bytes(), static_cast<std::int64_t>(kBytes * 9 / 10));
}

TEST(ThisProgram, IsTheTest) {
  EXPECT_EQ(this_program().filename(), "mezzo_example_support_test");
}

}  // namespace
}  // namespace examples
