#include "support/idx.h"

#include <mezzo/error.h>
#include <zlib.h>

#include <array>
#include <memory>
#include <string>

namespace examples {

namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 32;  // no data set of this format is larger

class GzipFile {
 public:
  explicit GzipFile(const std::filesystem::path& file)
      : name_(file.string()), handle_(gzopen(name_.c_str(), "rb"), &gzclose) {
    if (!handle_ || !std::filesystem::is_regular_file(file)) fail("cannot be opened");
  }

  /// Reads up to `count` bytes and returns how many there were.
  std::size_t read(void* target, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const auto part = static_cast<unsigned>(std::min<std::size_t>(count - done, 1U << 30));
      const int got = gzread(handle_.get(), static_cast<char*>(target) + done, part);
      int status = Z_OK;
      const char* why = gzerror(handle_.get(), &status);
      if (got < 0 || (status != Z_OK && status != Z_STREAM_END))
        fail(std::string("is damaged: ") + why);
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw mezzo::Error("data file '" + name_ + "' " + what);
  }

 private:
  std::string name_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> handle_;
};

std::int64_t big_endian(const std::uint8_t* bytes) {
  return (std::int64_t{bytes[0]} << 24) | (bytes[1] << 16) | (bytes[2] << 8) | bytes[3];
}

}  // namespace

IdxFile read_idx(const std::filesystem::path& file) {
  GzipFile in(file);
  std::array<std::uint8_t, 4> magic{};
  constexpr std::uint8_t kUnsignedBytes = 8;
  if (in.read(magic.data(), magic.size()) != magic.size()) in.fail("is cut off");
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedBytes || magic[3] == 0 ||
      magic[3] > 4) {
    in.fail("is no IDX file of unsigned bytes");
  }
  IdxFile result;
  std::int64_t count = 1;
  for (int i = 0; i < magic[3]; ++i) {
    std::array<std::uint8_t, 4> size{};
    if (in.read(size.data(), size.size()) != size.size()) in.fail("is cut off");
    result.shape.push_back(big_endian(size.data()));
    count *= result.shape.back();
    if (count > kLargest) in.fail("is damaged: its header asks for too much data");
  }
  result.values.resize(static_cast<std::size_t>(count));
  const std::size_t got = in.read(result.values.data(), result.values.size());
  if (got != result.values.size()) {
    in.fail("is cut off: its header says " + std::to_string(count) + " values, there are " +
            std::to_string(got));
  }
  std::uint8_t more = 0;
  if (in.read(&more, 1) != 0) in.fail("is longer than its header says");
  return result;
}

}  // namespace examples
