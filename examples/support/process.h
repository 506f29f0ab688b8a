// The requests of an example to the operating system.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace examples {

/// The file of the program that runs.
std::filesystem::path this_program();

/// Runs a program with these arguments, on this terminal, and waits for it. Returns its exit code,
/// or 128 plus the signal that ended it. Its OpenMP threads wait passively unless the environment
/// says otherwise: spinning ones take the cores from each other. Throws mezzo::Error where it
/// cannot be started.
int run_and_wait(const std::filesystem::path& program, const std::vector<std::string>& arguments);

/// Has the C library keep what is freed instead of giving it back to the system. A training step
/// frees its whole graph at its end; without this the next step pays for every page anew, which
/// costs levels with more intermediate tensors most. No effect where the C library is not glibc.
void keep_freed_memory();

/// Wipes the line of a progress bar where standard output is a terminal: text for people comes
/// next.
void clear_progress_line();

/// A new folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Throws mezzo::Error where this file could not be written later: better said before the training
/// than after it. Leaves nothing behind.
void require_writable(const std::filesystem::path& file);

/// The growth of this process's peak resident size since the object was made, in bytes.
class MemoryPeak {
 public:
  MemoryPeak();
  std::int64_t bytes() const;

 private:
  std::int64_t before_;
};

}  // namespace examples
