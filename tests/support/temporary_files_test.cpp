#include "support/temporary_files.h"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace mezzo::testing_files {
namespace {

namespace fs = std::filesystem;

/// Names the file in which the tests that another one starts say what they saw.
constexpr const char* kReport = "MEZZO_TEST_REPORT";

void report(const std::string& line) {
  std::ofstream(std::getenv(kReport), std::ios::app) << line << "\n";
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Runs the disabled tests of this program whose names match, with `environment` before them.
int run_again(const std::string& environment, const std::string& filter,
              const fs::path& report_file) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const std::string command = environment + " " + kReport + "='" + report_file.string() + "' '" +
                              program +
                              "' --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter='" +
                              filter + "' >/dev/null 2>&1";
  return std::system(("env " + command).c_str());
}

/// The same as a program that no test started, whose folder for temporary files is `outer`.
int run_alone(const fs::path& outer, const std::string& filter, const fs::path& report_file) {
  return run_again("-u MEZZO_TEST_FILES -u TEST_TMPDIR TMPDIR='" + outer.string() + "'", filter,
                   report_file);
}

TEST(LeftByATest, DISABLED_ThatFails) {
  std::ofstream(testing::TempDir() + "file") << "left";
  fs::create_directories(fs::temp_directory_path() / "folder" / "inner");
  std::ofstream(folder_in_memory() / "quick") << "left";
  report(folder_in_memory().string());
  FAIL();
}

TEST(LeftByATest, DISABLED_ThatThrows) {
  report(fs::is_empty(fs::temp_directory_path()) && fs::is_empty(folder_in_memory()) ? "empty"
                                                                                     : "not empty");
  std::ofstream(testing::TempDir() + "file") << "left";
  throw std::runtime_error("as asked");
}

TEST(LeftByATest, DISABLED_ThatAborts) {
  std::ofstream(testing::TempDir() + "file") << "left";
  report(folder_in_memory().string());
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

TEST(LeftByATest, DISABLED_ThatIsKilled) {
  std::ofstream(testing::TempDir() + "file") << "left";
  report(folder_in_memory().string());
  std::raise(SIGKILL);
}

TEST(LeftByATest, DISABLED_ThatPasses) {
  std::ofstream(testing::TempDir() + "file") << "left";
}

TEST(TemporaryFiles, GoWhenATestFailsOrThrowsAndWithTheProgram) {
  const fs::path outer = fs::path(testing::TempDir()) / "outer";
  const fs::path said = fs::path(testing::TempDir()) / "said";
  fs::create_directory(outer);
  EXPECT_NE(
      run_alone(outer, "LeftByATest.DISABLED_ThatFails:LeftByATest.DISABLED_ThatThrows", said), 0);
  EXPECT_TRUE(fs::is_empty(outer));
  const std::string text = text_of(said);
  const std::string in_memory = text.substr(0, text.find('\n'));
  EXPECT_NE(in_memory, folder_in_memory().string());
  EXPECT_FALSE(fs::exists(in_memory));
  EXPECT_THAT(text, testing::EndsWith("\nempty\n"));
}

TEST(TemporaryFiles, GoWithAProgramThatIsAbortedOrKilled) {
  const fs::path outer = fs::path(testing::TempDir()) / "outer";
  const fs::path said = fs::path(testing::TempDir()) / "said";
  fs::create_directory(outer);
  for (const char* test :
       {"LeftByATest.DISABLED_ThatAborts", "LeftByATest.DISABLED_ThatIsKilled"}) {
    EXPECT_NE(run_alone(outer, test, said), 0);
  }
  std::istringstream lines(text_of(said));
  std::vector<fs::path> folders{outer};
  for (std::string line; std::getline(lines, line);) folders.emplace_back(line);
  ASSERT_EQ(folders.size(), 3U);
  const auto is_left = [&](const fs::path& folder) {
    return folder == outer ? !fs::is_empty(folder) : fs::exists(folder);
  };
  for (const fs::path& folder : folders) {
    // The files go after the program: whoever removes them first hears that it ended.
    for (int tenth = 0; tenth < 300 && is_left(folder); ++tenth) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_FALSE(is_left(folder)) << folder;
  }
}

TEST(TemporaryFiles, OfAProgramThatATestStartsAreTheTests) {
  const fs::path said = fs::path(testing::TempDir()) / "said";
  EXPECT_EQ(run_again("", "LeftByATest.DISABLED_ThatPasses", said), 0);
  EXPECT_EQ(text_of(testing::TempDir() + "file"), "left");
}

TEST(TemporaryFiles, OfTheTestBeforeAreGone) {
  EXPECT_TRUE(fs::is_empty(testing::TempDir()));
}

}  // namespace
}  // namespace mezzo::testing_files
