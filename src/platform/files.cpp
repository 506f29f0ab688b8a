#include "platform/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "core/raise.h"
#include "platform/temporaries.h"

namespace mezzo::platform {
namespace {

void flush_to_disk(const std::filesystem::path& path) {
  // A pipe without a writer would be waited for.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

std::filesystem::path behind_links(const std::filesystem::path& path) {
  constexpr int kLongest = 40;  // as in Linux
  std::filesystem::path target = path;
  std::error_code failure;
  for (int links = 0; is_symlink(target, failure); ++links) {
    if (links == kLongest) raise("file", "cannot follow '", path.string(), "': too many links");
    target = target.parent_path() / read_symlink(target, failure);
  }
  return target;
}

void write_atomically(const std::filesystem::path& target,
                      const std::function<void(std::ostream&)>& write) {
  // A rename would put a file in the place of a device or a pipe.
  std::error_code unknown;
  const auto kind = std::filesystem::status(target, unknown).type();
  using std::filesystem::file_type;
  if (kind != file_type::regular && kind != file_type::not_found && kind != file_type::none) {
    raise("file", "cannot write '", target.string(), "': it is there and no regular file");
  }
  const std::filesystem::path name = target.string() + ".tmp" + std::to_string(getpid());
  const Temporary beside(name);
  std::ofstream out(name, std::ios::binary | std::ios::trunc);
  if (!out) raise("file", "cannot write '", target.string(), "': ", std::strerror(errno));
  write(out);
  out.close();
  if (!out) raise("file", "cannot write '", target.string(), "': ", std::strerror(errno));
  flush_to_disk(name);
  std::error_code failure;
  std::filesystem::rename(name, target, failure);
  if (failure) raise("file", "cannot replace '", target.string(), "': ", failure.message());
}

void replace_with_data(const std::filesystem::path& made, const std::filesystem::path& target) {
  const auto data_of = [](const std::filesystem::path& file) {
    return std::filesystem::path(file.string() + ".data");
  };
  const auto together = uninterrupted();
  if (std::filesystem::exists(data_of(made)))
    std::filesystem::rename(data_of(made), data_of(target));
  std::filesystem::rename(made, target);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  // A pipe without a writer would be waited for.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    const int why = errno;
    if (descriptor >= 0) close(descriptor);
    raise("file", "cannot read '", path.string(), "': ", std::strerror(why));
  }
  if (!S_ISREG(status.st_mode)) {
    close(descriptor);
    raise("file", "cannot read '", path.string(), "': not a regular file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ != 0) {
    void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      const int why = errno;
      close(descriptor);
      raise("file", "cannot map '", path.string(), "': ", std::strerror(why));
    }
    data_ = static_cast<const char*>(address);
  }
  close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

void MappedFile::release(std::string_view part) const {
  if (part.data() < data_ || part.data() + part.size() > data_ + size_) return;
  // A mapping starts at a page, so that whole pages can be counted from its start.
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(part.data() - data_);
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + part.size()) / page * page;
  if (begin < end) madvise(const_cast<char*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace mezzo::platform
