// Files: written so that readers see all or nothing, and read as memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string_view>

namespace mezzo::platform {

/// The target of a chain of symbolic links, there or not; another path is its own.
std::filesystem::path behind_links(const std::filesystem::path& path);

/// Writes a file so that a reader sees the old content or the new one, never a part: `write` fills
/// a stream beside the target, which is flushed to the disk and renamed over it. If `write` throws,
/// the target stays as it was. A link is replaced; to write what it leads to, see above.
void write_atomically(const std::filesystem::path& target,
                      const std::function<void(std::ostream&)>& write);

/// Renames a file over the target, and what stands beside it as `.data`, if anything, over what the
/// target has there. Signals that end the process wait until both are done.
void replace_with_data(const std::filesystem::path& made, const std::filesystem::path& target);

/// A file, readable as memory while this object lives. Pages come in when they are touched and may
/// be given back.
class MappedFile {
 public:
  /// Throws Error if the file cannot be opened, or is no regular file.
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

}  // namespace mezzo::platform
