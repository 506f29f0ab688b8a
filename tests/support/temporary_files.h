// Temporary files of a test program: they stand in a folder of its own and go when a test ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <set>
#include <vector>

namespace mezzo::testing_files {

/// The program's folder in memory where the system has such a place, else its folder for temporary
/// files: for tests that write many files, each of which is flushed to the disk.
std::filesystem::path folder_in_memory();

/// Makes the folders and points TMPDIR at one of them, so that tests, the processes that they start
/// and GoogleTest's TempDir() write there. A test's files go when the test ends, whether it passes,
/// fails or throws, and the folders with the program, also where it is aborted or killed. To be
/// made before the program has threads: it forks. A test program that a test starts writes into its
/// starter's folder and removes nothing.
class TemporaryFiles : public testing::EmptyTestEventListener {
 public:
  /// Throws std::system_error where no folder, no pipe or no process can be made.
  TemporaryFiles();
  ~TemporaryFiles() override;
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;

  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestEnd(const testing::TestInfo& test) override;

 private:
  pid_t owner_;
  std::vector<std::filesystem::path> folders_;
  std::set<std::filesystem::path> before_;
};

}  // namespace mezzo::testing_files
