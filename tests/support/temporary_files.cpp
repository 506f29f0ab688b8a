#include "temporary_files.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

namespace mezzo::testing_files {
namespace {

namespace fs = std::filesystem;

/// Names the program's folder to the programs that it starts.
constexpr const char* kOwner = "MEZZO_TEST_FILES";
constexpr const char* kInMemory = "MEZZO_TEST_FILES_IN_MEMORY";

fs::path made_in(const fs::path& root) {
  std::string folder = (root / "mezzo_test_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot make a folder in " + root.string());
  }
  return folder;
}

bool is_started_by_a_test() {
  const char* owner = std::getenv(kOwner);
  return owner != nullptr && fs::temp_directory_path() == owner;
}

void set(const char* variable, const fs::path& folder) {
  ::setenv(variable, folder.c_str(), 1);
}

void remove_entries(const std::vector<fs::path>& folders, const std::set<fs::path>& kept) {
  std::error_code ignored;
  for (const auto& folder : folders) {
    std::vector<fs::path> gone;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (!kept.contains(entry.path())) gone.push_back(entry.path());
    }
    for (const auto& entry : gone) fs::remove_all(entry, ignored);
  }
}

/// Starts a process that outlives this one by the time that removing `folders` takes, however this
/// one ends. A grandchild, so that who kills this program and its children does not find it.
void remove_after_this_program(const std::vector<fs::path>& folders) {
  int ends[2] = {};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot fork");
  if (child > 0) {  // this program holds the end that is written to as long as it lives
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return;
  }
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  // Whoever reads what the tests print waits for everybody who could still print.
  for (const int output : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(output);
  ::close(ends[1]);
  char nothing = 0;
  while (::read(ends[0], &nothing, 1) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  for (const auto& folder : folders) fs::remove_all(folder, ignored);
  ::_exit(0);
}

}  // namespace

fs::path folder_in_memory() {
  const char* folder = std::getenv(kInMemory);
  return folder != nullptr ? fs::path(folder) : fs::temp_directory_path();
}

TemporaryFiles::TemporaryFiles() : owner_(::getpid()) {
  if (is_started_by_a_test()) return;
  const fs::path memory = "/dev/shm";
  folders_.push_back(made_in(fs::temp_directory_path()));
  for (const char* variable : {"TMPDIR", "TEST_TMPDIR", kOwner}) set(variable, folders_.front());
  if (fs::is_directory(memory)) folders_.push_back(made_in(memory));
  set(kInMemory, folders_.back());
  remove_after_this_program(folders_);
}

void TemporaryFiles::OnTestStart(const testing::TestInfo& /*test*/) {
  before_.clear();
  for (const auto& folder : folders_) {
    fs::create_directories(folder);  // where a test took it away
    for (const auto& entry : fs::directory_iterator(folder)) before_.insert(entry.path());
  }
}

void TemporaryFiles::OnTestEnd(const testing::TestInfo& /*test*/) {
  remove_entries(folders_, before_);
}

TemporaryFiles::~TemporaryFiles() {
  if (::getpid() != owner_) return;  // a copy of the program that a test made
  std::error_code ignored;
  for (const auto& folder : folders_) fs::remove_all(folder, ignored);
}

}  // namespace mezzo::testing_files
