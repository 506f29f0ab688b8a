#include "core/platform.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/raise.h"
#include "core/temporaries.h"

namespace mezzo::platform {

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  std::int64_t resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

bool is_terminal(int descriptor) {
  return isatty(descriptor) != 0;
}

int terminal_columns(int descriptor) {
  constexpr int kUsual = 80;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

void* open_library(const std::string& name, std::string* why) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr && why != nullptr) *why = dlerror();
  return handle;
}

std::filesystem::path program_path() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown);
}

std::vector<std::string> library_candidates(const std::string& name, const std::string& package) {
  std::vector<std::string> found{name};
  std::vector<std::string> patterns;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&library_candidates), &own) != 0) {
    patterns.push_back(std::filesystem::path(own.dli_fname).parent_path().string() + "/" + name);
  }
  for (const char* folder : {"/usr/local/lib/", "/usr/lib/*-linux-gnu/", "/usr/lib/"}) {
    patterns.push_back(folder + name);
  }
  for (const char* folder :
       {"/usr/local/lib/python3*/dist-packages/", "/usr/lib/python3*/dist-packages/",
        "/usr/local/lib/python3*/site-packages/"}) {
    patterns.push_back((std::filesystem::path(folder) / package / name).string());
  }
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (glob((pattern + "*").c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    }
    globfree(&matches);
  }
  return found;
}

void* find_symbol(void* library, const std::string& name) {
  return dlsym(library, name.c_str());
}

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

namespace {

/// The first value that the system tells of the processor under this name; empty if there is none.
std::string processor_entry(const std::string& name) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind(name, 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace

std::string processor_name() {
  const std::string name = processor_entry("model name");
  return name.empty() ? "unknown" : name;
}

std::vector<std::string> processor_flags() {
  std::istringstream words(processor_entry("flags"));
  std::vector<std::string> flags;
  for (std::string word; words >> word;) flags.push_back(word);
  return flags;
}

}  // namespace mezzo::platform
