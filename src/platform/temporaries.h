// Files that exist only while something is made, and must not outlive the program when it is
// stopped.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

namespace mezzo::platform {

/// A file or folder that goes away with this object, with all that is in it, whether or not it has
/// come into being. Objects may be made and destroyed on any thread.
class Temporary {
 public:
  explicit Temporary(const std::filesystem::path& path);
  /// Makes a folder; nothing if it is there already, or cannot be made (`failure`).
  static std::unique_ptr<const Temporary> new_folder(const std::filesystem::path&,
                                                     std::error_code& failure);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct Known {};
  Temporary(std::filesystem::path path, Known) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

/// A new folder beside a file that is to be written, so that what is made in it can take the file's
/// place. Throws Error, which begins with `where`, if nothing can be written there.
std::unique_ptr<const Temporary> folder_beside(const std::filesystem::path& target,
                                               std::string_view where);

/// While the lock is held, signals that remove_temporaries_when_stopped() awaits have to wait: for
/// steps that must be done together. No Temporary may be made or destroyed by its holder.
[[nodiscard]] std::unique_lock<std::mutex> uninterrupted();

/// From now on SIGINT, SIGTERM and SIGHUP end this process as before, but every Temporary is
/// removed first; a signal that is ignored stays ignored. For programs, at their start, before they
/// have threads: the signals are blocked in the calling thread and those that it starts.
void remove_temporaries_when_stopped();

}  // namespace mezzo::platform
