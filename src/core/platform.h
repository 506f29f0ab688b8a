// Everything that asks the operating system: the only files of the library with POSIX in them are
// platform*.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::platform {

/// The largest resident size this process had so far, in bytes.
std::int64_t peak_resident_bytes();

/// The resident size now, in bytes.
std::int64_t resident_bytes();

/// Is this file descriptor (1: standard output, 2: standard error) a terminal?
bool is_terminal(int descriptor);

/// The width of that terminal in characters; 80 where it cannot be told.
int terminal_columns(int descriptor);

/// Opens a shared library and returns its handle; nothing, with the reason in `why`, where it
/// cannot be loaded.
void* open_library(const std::string& name, std::string* why = nullptr);

/// The file of the running program; empty where the system does not tell.
std::filesystem::path program_path();

/// Files of that name (or with a version behind it) where libraries of other projects usually lie:
/// the loader's own search first, then beside this library, the system's folders, and those of
/// Python packages that bring their own.
std::vector<std::string> library_candidates(const std::string& name, const std::string& package);

/// The address of a symbol of an opened library, or null.
void* find_symbol(void* library, const std::string& name);

/// What a chain of symbolic links leads to, there or not; another path is its own.
std::filesystem::path behind_links(const std::filesystem::path& path);

/// Writes a file so that a reader sees the old content or the new one, never a part: `write` fills
/// a stream beside the target, which is flushed to the disk and renamed over it. What `write`
/// throws leaves the target as it was. A link is replaced; to write what it leads to, see above.
void write_atomically(const std::filesystem::path& target,
                      const std::function<void(std::ostream&)>& write);

/// A file, readable as memory while this object lives. Pages come in when they are touched and may
/// be given back.
class MappedFile {
 public:
  /// Throws Error where the file cannot be opened, or is no regular file.
  explicit MappedFile(const std::filesystem::path&);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {data_, size_}; }
  /// Lets the system drop the pages wholly inside `part` (a view into bytes()); they are read from
  /// the file again when touched.
  void release(std::string_view part) const;

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The processor's name, as the system tells it.
std::string processor_name();

/// What the processor can do, in the system's words ("avx2", "avx512_bf16"); empty where it does
/// not tell.
std::vector<std::string> processor_flags();

}  // namespace mezzo::platform
