#include <unistd.h>

#include <csignal>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "core/raise.h"
#include "platform/temporaries.h"

namespace mezzo::platform {
namespace {

namespace fs = std::filesystem;

struct Registry {
  std::mutex mutex;
  std::multiset<fs::path> paths;
};

// Never destroyed: the thread that waits for signals lives as long as the process.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

// The process may be in another folder when it is stopped.
fs::path whole(const fs::path& path) {
  std::error_code failure;
  fs::path absolute = fs::absolute(path, failure);
  return failure ? path : absolute;
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

Temporary::Temporary(const fs::path& path) : path_(whole(path)) {
  const std::scoped_lock lock(registry().mutex);
  registry().paths.insert(path_);
}

std::unique_ptr<const Temporary> Temporary::new_folder(const fs::path& path,
                                                       std::error_code& failure) {
  const std::scoped_lock lock(registry().mutex);
  if (!fs::create_directory(path, failure)) return nullptr;
  std::unique_ptr<const Temporary> made(new Temporary(whole(path), Known{}));
  registry().paths.insert(made->path());
  return made;
}

Temporary::~Temporary() {
  remove_quietly(path_);
  const std::scoped_lock lock(registry().mutex);
  registry().paths.extract(path_);
}

std::unique_ptr<const Temporary> folder_beside(const fs::path& target, std::string_view where) {
  constexpr int kMostTries = 1000;
  const fs::path parent = target.parent_path().empty() ? fs::path(".") : target.parent_path();
  std::error_code failure;
  for (int i = 0; i < kMostTries && !failure; ++i) {
    std::string name = ".";  // joined step by step: g++ 12 cries wolf over a sum
    name.append(target.filename().string()).append(".work").append(std::to_string(i));
    if (auto folder = Temporary::new_folder(parent / name, failure)) return folder;
  }
  raise(where, "cannot write beside '", target.string(), "': ", failure.message());
}

std::unique_lock<std::mutex> uninterrupted() {
  return std::unique_lock(registry().mutex);
}

void remove_temporaries_when_stopped() {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      sigaddset(&awaited, signal);
  }
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  std::thread([awaited] {
    int signal = 0;
    if (sigwait(&awaited, &signal) != 0) return;
    // Held until the end, so that nothing new comes into being.
    const std::scoped_lock lock(registry().mutex);
    for (const fs::path& path : registry().paths) remove_quietly(path);
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    sigaction(signal, &usual, nullptr);
    pthread_sigmask(SIG_UNBLOCK, &awaited, nullptr);
    kill(getpid(), signal);
    // Another thread may not have met its end yet.
    for (;;) pause();
  }).detach();
}

}  // namespace mezzo::platform
