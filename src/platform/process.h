// Other processes: starting them, reading what they write, ending them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mezzo::platform {

/// How a process ended: by an exit code, or by a signal.
struct ProcessEnd {
  int code = 0;
  int signal = 0;
  bool failed() const noexcept { return code != 0 || signal != 0; }
  /// The code that a shell reports: the exit code, or 128 + signal.
  int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }
};

/// A child process whose standard output and error come through pipes; its standard input is empty.
/// It leads a process group of its own, so that signals reach what it starts too, and a terminal's
/// Ctrl-C only this process. It is killed when the thread that started it ends, and the whole group
/// when this process does, also by SIGKILL, so that none is left behind; the destructor kills and
/// reaps it too.
class Process {
 public:
  /// Starts command[0], looked up in PATH where it has no slash, with this process's environment
  /// and `environment` on top. Throws Error if the program cannot be started.
  Process(const std::vector<std::string>& command,
          const std::map<std::string, std::string>& environment);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int id() const noexcept { return id_; }
  /// How it ended; nothing while it runs. Does not wait. Processes that it started and left behind
  /// in its group are killed then.
  std::optional<ProcessEnd> end();
  /// Sends a signal to the process and its group, unless it has ended.
  void send(int signal);
  /// The pipes' reading ends, not blocking: 0 is standard output, 1 standard error.
  int pipe(int which) const noexcept { return pipes_[which]; }
  /// Appends what is there to `text`, a megabyte at most; false once the writer has closed its end.
  bool read(int which, std::string& text);

 private:
  void start_guard(int go);
  void end_guard();

  int id_ = -1;
  int guard_ = -1;  // a child that ends the group when this process has gone
  int life_ = -1;   // the pipe by which it learns of that
  int pipes_[2] = {-1, -1};
  std::optional<ProcessEnd> end_;
};

/// The end of work that was done in a copy of this process.
struct ApartEnd {
  ProcessEnd end;
  std::string result;  // what the work gave, where it came to its end
};

/// Does the work in a copy of this process and waits, so that a crash there is none here. The copy
/// has this thread alone, and its standard streams are empty: the work must not need what other
/// threads hold. It is killed when the thread that started it ends. Nothing if no copy can be
/// made.
std::optional<ApartEnd> do_apart(const std::function<std::string()>& work);

/// Runs another program in place of this one, with its standard streams and environment; returns
/// never. Throws Error if it cannot be started.
[[noreturn]] void replace_process(std::vector<std::string> command);

/// Waits until one of the descriptors can be read (those below 0 are left out), for `limit` at
/// most, or until a signal comes.
void wait_readable(const std::vector<int>& descriptors, std::chrono::milliseconds limit);

/// While it lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1 and SIGUSR2 are taken note of
/// instead of ending this process; a SIGHUP that was ignored before stays so, as `nohup` has it.
/// One at a time in a process.
class SignalCatcher {
 public:
  SignalCatcher();
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;
  /// A signal that came and was not taken yet, if any: those that end a program first.
  std::optional<int> taken();

 private:
  struct Previous;
  Previous* previous_;
};

constexpr int kKill = 9;
constexpr int kUser1 = 10;
constexpr int kUser2 = 12;
constexpr int kBrokenPipe = 13;
constexpr int kTerminate = 15;

/// "SIGSEGV (segmentation fault)", or "signal 42".
std::string signal_name(int signal);

/// A variable of the process's environment; nothing if it is not set.
std::optional<std::string> environment_variable(const std::string& name);

/// From now on writing to a peer that is gone is an error of that write, and does not end the
/// process by a signal; a handler that the program has set stays.
void survive_broken_connections();

}  // namespace mezzo::platform
