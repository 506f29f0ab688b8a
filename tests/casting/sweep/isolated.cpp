#include "casting/sweep/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

namespace mezzo::casting::sweep {
namespace {

void write_all(int to, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(to, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace

Isolated isolated(std::chrono::seconds limit,
                  const std::function<void(const std::function<void(const std::string&)>&)>& work) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {"no pipe\n", false};
  // Some operators open files by a name that was drawn.
  std::string place = (std::filesystem::temp_directory_path() / "mezzo_sweep_XXXXXX").string();
  if (::mkdtemp(place.data()) == nullptr) return {"no folder\n", false};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    if (::chdir(place.c_str()) != 0) ::_exit(1);
    const int silent = ::open("/dev/null", O_WRONLY);
    ::dup2(silent, STDERR_FILENO);
    const auto tell = [&](const std::string& line) { write_all(ends[1], line + "\n"); };
    try {
      work(tell);
    } catch (const std::exception& error) {
      // Never out of this function: the copy would go on with the tests after this one.
      const std::string_view what = error.what();
      tell("threw " + std::string(what.substr(0, what.find('\n'))));
      ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  Isolated result;
  std::array<char, 4096> piece{};
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wanted{ends[0], POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count())) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    const ssize_t count = ::read(ends[0], piece.data(), piece.size());
    if (count <= 0) break;
    result.said.append(piece.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(place);
  result.ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return result;
}

}  // namespace mezzo::casting::sweep
