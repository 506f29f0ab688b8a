#include "core/platform_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

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

// Between fork and exec only calls that are safe in a copy of a threaded process.
[[noreturn]] void become(char** command, char** environment, int out, int err, int report,
                         pid_t parent, int nothing) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // What was caught is itself again after exec; what was ignored stays so, as `nohup` has it.
  signal(SIGPIPE, SIG_DFL);
  dup2(nothing, 0);
  dup2(out, 1);
  dup2(err, 2);
  execvpe(command[0], command, environment);
  const int why = errno;
  [[maybe_unused]] const ssize_t written = write(report, &why, sizeof why);
  _exit(127);
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
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ == 0) {
    become(const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), out.write, err.write,
           report.write, parent, nothing);
  }
  const int fork_error = errno;
  for (int end : {out.write, err.write, report.write, nothing}) close(end);
  int why = 0;
  ssize_t got = -1;
  if (id_ > 0) {
    do got = ::read(report.read, &why, sizeof why);
    while (got < 0 && errno == EINTR);
  }
  close(report.read);
  if (id_ < 0 || got > 0) {
    close(out.read);
    close(err.read);
    if (id_ > 0) waitpid(id_, nullptr, 0);
    raise("process", "cannot start '", command[0],
          "': ", std::strerror(id_ < 0 ? fork_error : why));
  }
  pipes_[0] = out.read;
  pipes_[1] = err.read;
  for (int end : pipes_) fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
}

Process::~Process() {
  if (!end()) {
    kill(-id_, SIGKILL);
    waitpid(id_, nullptr, 0);
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
  int status = 0;
  if (waitpid(id_, &status, 0) != id_) return std::nullopt;
  end_ = ProcessEnd{};
  if (WIFSIGNALED(status)) {
    end_->signal = WTERMSIG(status);
  } else {
    end_->code = WEXITSTATUS(status);
  }
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

// Those that end a program first.
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

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int& failure) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return {failure == 0 ? found : nullptr, freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

}  // namespace

bool resolves(const std::string& host, std::string* why) {
  int failure = 0;
  resolve(host, failure);
  if (failure != 0 && why != nullptr) *why = gai_strerror(failure);
  return failure == 0;
}

std::string address_towards(const std::string& host) {
  int failure = 0;
  const Addresses found = resolve(host, failure);
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    sockaddr_storage target{};
    std::memcpy(&target, to->ai_addr, to->ai_addrlen);
    // A datagram socket's connect() sends nothing: it only asks the routing table.
    const int descriptor = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    reinterpret_cast<sockaddr_in*>(&target)->sin_port = htons(9);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool known =
        connect(descriptor, reinterpret_cast<sockaddr*>(&target), to->ai_addrlen) == 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    close(descriptor);
    if (known) return numeric(reinterpret_cast<sockaddr*>(&own), size);
  }
  return "";
}

bool is_loopback(const std::string& host) {
  in_addr number{};
  if (inet_pton(AF_INET, host.c_str(), &number) == 1) return host.rfind("127.", 0) == 0;
  return host == "::1" || host == "localhost" || host == "localhost.localdomain";
}

std::string outward_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const bool leads_out = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (one->ifa_addr == nullptr || !leads_out || one->ifa_addr->sa_family != AF_INET) continue;
    return numeric(one->ifa_addr, sizeof(sockaddr_in));
  }
  return "";
}

namespace {

bool can_connect(const addrinfo& to, int port, std::chrono::milliseconds limit) {
  const int descriptor = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return false;
  sockaddr_storage target{};
  std::memcpy(&target, to.ai_addr, to.ai_addrlen);
  reinterpret_cast<sockaddr_in*>(&target)->sin_port = htons(static_cast<std::uint16_t>(port));
  int failure = 0;
  if (connect(descriptor, reinterpret_cast<sockaddr*>(&target), to.ai_addrlen) != 0) {
    failure = errno;
    pollfd ready{descriptor, POLLOUT, 0};
    socklen_t size = sizeof failure;
    if (failure == EINPROGRESS && poll(&ready, 1, static_cast<int>(limit.count())) == 1) {
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &size);
    }
  }
  close(descriptor);
  return failure == 0;
}

}  // namespace

bool wait_connectable(const std::string& host, int port, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limit;
  while (true) {
    int failure = 0;
    const Addresses found = resolve(host, failure);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      if (can_connect(*to, port, std::max(left, std::chrono::milliseconds(1)))) return true;
    }
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

int listen_at(const std::string& address, int& port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &at.sin_addr) != 1) {
    raise("process", "'", address, "' is no numeric IPv4 address");
  }
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  socklen_t size = sizeof at;
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(descriptor, SOMAXCONN) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    const int why = errno;
    close(descriptor);
    raise("process", "cannot listen at ", address, ", port ", port, ": ", std::strerror(why));
  }
  port = ntohs(at.sin_port);
  return descriptor;
}

void close_descriptor(int descriptor) {
  close(descriptor);
}

void survive_broken_connections() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    now.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &now, nullptr);
  }
}

}  // namespace mezzo::platform
