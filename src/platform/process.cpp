#include "platform/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/raise.h"

namespace mezzo::platform {
namespace {

struct PipeEnds {
  int read = -1;
  int write = -1;
};

PipeEnds make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) raise("process", "cannot make a pipe: ", std::strerror(errno));
  return {ends[0], ends[1]};
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

ProcessEnd end_of(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.count(text.substr(0, text.find('='))) == 0) all.emplace_back(text);
  }
  for (const auto& [name, value] : added) all.emplace_back(name).append("=").append(value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// The parts of the parent that a child has until it becomes a program.
struct ChildEnds {
  int nothing, out, err, report, go;
};

// Between fork and exec only calls that are safe in a copy of a threaded process.
[[noreturn]] void become(char** command, char** environment, const ChildEnds& ends, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Caught signals are themselves again after exec; ignored ones stay ignored, as `nohup` has it.
  signal(SIGPIPE, SIG_DFL);
  // Before it is guarded it must not start anything, which nobody would end if the parent died.
  char word = 0;
  ssize_t got = 0;
  do got = ::read(ends.go, &word, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1) _exit(127);
  dup2(ends.nothing, 0);
  dup2(ends.out, 1);
  dup2(ends.err, 2);
  execvpe(command[0], command, environment);
  const int why = errno;
  [[maybe_unused]] const ssize_t written = write(ends.report, &why, sizeof why);
  _exit(127);
}

void give_word(int go) {
  const char word = 1;
  while (write(go, &word, 1) < 0 && errno == EINTR) {
  }
}

// Waits until the writing end of `life` is gone, which this process alone has: then it has ended,
// however that came, and the group goes with it. A member of the group itself, so that its number
// cannot become anybody else's; what is sent to the group does not disturb it.
[[noreturn]] void guard(pid_t group, int life, int go) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const bool is_member = setpgid(0, group) == 0;
  give_word(go);
  if (!is_member) _exit(0);
  // The ends of others' pipes, which must not seem open.
  dup2(life, 0);
  constexpr int kMost = 4096;  // where the kernel is too old to close all at once
  if (close_range(1, ~0U, 0) != 0) {
    for (int end = 1; end < kMost; ++end) close(end);
  }
  char none = 0;
  ssize_t got = 0;
  do got = ::read(0, &none, 1);
  while (got > 0 || (got < 0 && errno == EINTR));
  kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Process::Process(const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& environment) {
  if (command.empty()) raise<ConfigError>("process", "no program to start");
  std::vector<std::string> words = command;
  std::vector<std::string> variables = merged_environment(environment);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  const PipeEnds out = make_pipe();
  const PipeEnds err = make_pipe();
  const PipeEnds report = make_pipe();
  const PipeEnds go = make_pipe();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ == 0) {
    close(go.write);
    become(const_cast<char**>(argv.data()), const_cast<char**>(envp.data()),
           {nothing, out.write, err.write, report.write, go.read}, parent);
  }
  const int fork_error = errno;
  for (int end : {out.write, err.write, report.write, nothing}) close(end);
  int why = 0;
  ssize_t got = -1;
  if (id_ > 0) {
    // By both of them, since either may be first.
    setpgid(id_, id_);
    start_guard(go.write);
  }
  close(go.write);
  if (id_ > 0) {
    do got = ::read(report.read, &why, sizeof why);
    while (got < 0 && errno == EINTR);
  }
  // Open until here, so that a word to a process that was killed is no SIGPIPE.
  close(go.read);
  close(report.read);
  if (id_ < 0 || got > 0) {
    close(out.read);
    close(err.read);
    if (id_ > 0) wait_for(id_);
    end_guard();
    raise("process", "cannot start '", command[0],
          "': ", std::strerror(id_ < 0 ? fork_error : why));
  }
  pipes_[0] = out.read;
  pipes_[1] = err.read;
  for (int end : pipes_) fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
}

void Process::start_guard(int go) {
  int ends[2];
  // Without it the process ends with this one all the same, and what it has started may stay.
  const bool is_made = pipe2(ends, O_CLOEXEC) == 0;
  if (is_made) guard_ = fork();
  if (guard_ == 0) guard(id_, ends[0], go);
  if (guard_ < 0) give_word(go);
  if (!is_made) return;
  close(ends[0]);
  life_ = ends[1];
}

void Process::end_guard() {
  if (life_ >= 0) close(life_);
  life_ = -1;
  if (guard_ > 0) wait_for(guard_);
  guard_ = -1;
}

Process::~Process() {
  if (!end()) {
    kill(-id_, SIGKILL);
    wait_for(id_);
    end_guard();
  }
  for (int end : pipes_) {
    if (end >= 0) close(end);
  }
}

std::optional<ProcessEnd> Process::end() {
  if (end_) return end_;
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(id_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      ended.si_pid != id_) {
    return std::nullopt;
  }
  // Not yet reaped, so the group's number cannot be anybody else's.
  kill(-id_, SIGKILL);
  const int status = wait_for(id_);
  end_guard();
  end_ = end_of(status);
  return end_;
}

void Process::send(int signal) {
  if (!end()) kill(-id_, signal);
}

bool Process::read(int which, std::string& text) {
  int& descriptor = pipes_[which];
  if (descriptor < 0) return false;
  // As much as a pipe can hold: who writes without end must not keep the reader for ever.
  constexpr std::size_t kMost = std::size_t{1} << 20;
  char block[65536];
  std::size_t total = 0;
  while (true) {
    if (total >= kMost) return true;
    const ssize_t got = ::read(descriptor, block, sizeof block);
    if (got > 0) {
      text.append(block, static_cast<std::size_t>(got));
      total += static_cast<std::size_t>(got);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return true;
    } else {
      close(descriptor);
      descriptor = -1;
      return false;
    }
  }
}

namespace {

// A crash in a copy is an answer: it ends it at once, without a report, a handler or a core file.
void crash_quietly() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(signal, SIG_DFL);
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
}

[[noreturn]] void work_apart(const std::function<std::string()>& work, int to, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  crash_quietly();
  const int nothing = open("/dev/null", O_RDWR);
  for (int stream = 0; stream < 3; ++stream) dup2(nothing, stream);
  int code = 127;
  try {
    const std::string result = work();
    std::size_t done = 0;
    while (done < result.size()) {
      const ssize_t count = write(to, result.data() + done, result.size() - done);
      if (count < 0 && errno != EINTR) _exit(127);
      if (count > 0) done += static_cast<std::size_t>(count);
    }
    code = 0;
  } catch (...) {
  }
  _exit(code);
}

std::string read_all(int from) {
  std::string text;
  char block[4096];
  while (true) {
    const ssize_t got = ::read(from, block, sizeof block);
    if (got > 0) text.append(block, static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

std::optional<ApartEnd> do_apart(const std::function<std::string()>& work) {
  int answer[2];
  if (pipe2(answer, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t parent = getpid();
  const pid_t copy = fork();
  if (copy == 0) work_apart(work, answer[1], parent);
  close(answer[1]);
  std::optional<ApartEnd> apart;
  if (copy > 0) {
    apart.emplace();
    apart->result = read_all(answer[0]);
    apart->end = end_of(wait_for(copy));
  }
  close(answer[0]);
  return apart;
}

void replace_process(std::vector<std::string> command) {
  const std::vector<char*> words = pointers(command);
  execvp(words[0], words.data());
  raise("process", "cannot start '", command.front(), "': ", std::strerror(errno));
}

void wait_readable(const std::vector<int>& descriptors, std::chrono::milliseconds limit) {
  std::vector<pollfd> all;
  for (int descriptor : descriptors) {
    if (descriptor >= 0) all.push_back({descriptor, POLLIN, 0});
  }
  poll(all.data(), all.size(), static_cast<int>(limit.count()));
}

namespace {

// The signals that end a program come first.
constexpr int kCaught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
// Any thread may be the one that the system interrupts.
std::atomic<bool> came[std::size(kCaught)] = {};
static_assert(std::atomic<bool>::is_always_lock_free, "set inside a signal handler");

void note_signal(int signal) {
  for (std::size_t i = 0; i < std::size(kCaught); ++i) {
    if (kCaught[i] == signal) came[i] = true;
  }
}

}  // namespace

struct SignalCatcher::Previous {
  struct sigaction actions[std::size(kCaught)];
};

SignalCatcher::SignalCatcher() : previous_(std::make_unique<Previous>().release()) {
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kCaught); ++i) {
    came[i] = false;
    struct sigaction& before = previous_->actions[i];
    sigaction(kCaught[i], nullptr, &before);
    const bool is_nohup = kCaught[i] == SIGHUP && before.sa_handler == SIG_IGN;
    if (!is_nohup) sigaction(kCaught[i], &action, nullptr);
  }
}

SignalCatcher::~SignalCatcher() {
  const std::unique_ptr<Previous> previous(previous_);
  for (std::size_t i = 0; i < std::size(kCaught); ++i) {
    sigaction(kCaught[i], &previous->actions[i], nullptr);
  }
}

std::optional<int> SignalCatcher::taken() {
  for (std::size_t i = 0; i < std::size(kCaught); ++i) {
    if (came[i].exchange(false)) return kCaught[i];
  }
  return std::nullopt;
}

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return "signal " + std::to_string(signal);
  return std::string("SIG") + abbreviation + " (" + sigdescr_np(signal) + ")";
}

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void survive_broken_connections() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    now.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &now, nullptr);
  }
}

}  // namespace mezzo::platform
