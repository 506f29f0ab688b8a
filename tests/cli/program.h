// Runs the real program and tells what it printed.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace mezzo::cli {

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// `mezzo ARGUMENTS`, which a shell reads.
inline Outcome mezzo(const std::string& arguments) {
  const auto errors = std::filesystem::temp_directory_path() /
                      ("mezzo_cli_test_" + std::to_string(getpid()) + ".err");
  const std::string command =
      std::string(MEZZO_PROGRAM) + " " + arguments + " 2>" + errors.string();
  Outcome outcome{};
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    outcome.out.append(buffer, count);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.err = content_of(errors);
  std::filesystem::remove(errors);
  return outcome;
}

}  // namespace mezzo::cli
