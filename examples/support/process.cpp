#include "support/process.h"

#include <mezzo/error.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

extern char** environ;  // NOLINT(readability-redundant-declaration): glibc alone declares it

namespace examples {

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// An entry of /proc/self/status in bytes, such as "VmHWM". Unlike getrusage's peak, that one is
/// not inherited from the program that started this one, and it can be set back.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return 0;
}

}  // namespace

std::filesystem::path this_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kFromTheSystem = 1 << 30;  // bytes from which a block is mapped by itself
  mallopt(M_MMAP_THRESHOLD, kFromTheSystem);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

int run_and_wait(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) variables.emplace_back("OMP_WAIT_POLICY=passive");
  if (std::getenv("GOMP_SPINCOUNT") == nullptr) variables.emplace_back("GOMP_SPINCOUNT=0");
  pid_t child = 0;
  const int failure = posix_spawn(&child, program.c_str(), nullptr, nullptr, pointers(words).data(),
                                  pointers(variables).data());
  if (failure != 0) {
    throw mezzo::Error("cannot start '" + program.string() + "': " + std::strerror(failure));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw mezzo::Error(std::string("waiting failed: ") + std::strerror(errno));
  }
  constexpr int kSignalled = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

void clear_progress_line() {
  if (isatty(STDOUT_FILENO) == 1) std::cout << "\r\x1b[K";
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "mezzo-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw mezzo::Error("cannot make a folder '" + pattern + "': " + std::strerror(errno));
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void require_writable(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::string probe = (folder / ".mezzo-XXXXXX").string();
  const int descriptor = std::filesystem::is_directory(file) ? -1 : mkstemp(probe.data());
  if (descriptor < 0) {
    throw mezzo::Error(
        "cannot write '" + file.string() +
        "': " + (std::filesystem::is_directory(file) ? "it is a folder" : std::strerror(errno)));
  }
  close(descriptor);
  unlink(probe.c_str());
}

MemoryPeak::MemoryPeak() {
  std::ofstream("/proc/self/clear_refs") << "5";  // sets the peak back to the present size
  before_ = status_bytes("VmRSS");
}

std::int64_t MemoryPeak::bytes() const {
  return std::max<std::int64_t>(status_bytes("VmHWM") - before_, 0);
}

}  // namespace examples
