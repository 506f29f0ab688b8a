#include "imagenet/data/jpeg.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>

// After <cstdio>: they use its types without naming them.
#include <jerror.h>
#include <jpeglib.h>

namespace examples::imagenet {
namespace {

// libjpeg leaves by a jump, which must not pass an object with a destructor.
struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf place;
  std::array<char, JMSG_LENGTH_MAX> message;
};

void leave(j_common_ptr state) {
  auto* failure = reinterpret_cast<Failure*>(state->err);
  state->err->format_message(state, failure->message.data());
  std::longjmp(failure->place, 1);
}

/// Damage is a warning to libjpeg, which goes on with grey; bytes between two parts of a file are
/// not damage.
void warn(j_common_ptr state, int level) {
  if (level < 0 && state->err->msg_code != JWRN_EXTRANEOUS_DATA) leave(state);
}

/// The window of the scaled image that a part is decoded to.
struct Window {
  unsigned scale = 1;  // the image's size is divided by it
  JDIMENSION left = 0, width = 0, top = 0, height = 0;
};

void report_to(jpeg_decompress_struct& jpeg, Failure& failure) {
  jpeg.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = leave;
  failure.manager.emit_message = warn;
  failure.manager.output_message = [](j_common_ptr) {};
}

bool read_size(std::span<const unsigned char> bytes, Failure& failure, int& width, int& height) {
  jpeg_decompress_struct jpeg{};
  report_to(jpeg, failure);
  if (setjmp(failure.place) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  width = static_cast<int>(jpeg.image_width);
  height = static_cast<int>(jpeg.image_height);
  jpeg_destroy_decompress(&jpeg);
  return true;
}

/// Rows of the window, of `channels` bytes a pixel; widens it to where libjpeg can begin.
bool decode_window(std::span<const unsigned char> bytes, Failure& failure, Window& window,
                   std::vector<std::uint8_t>& rows, int& channels) {
  jpeg_decompress_struct jpeg{};
  report_to(jpeg, failure);
  if (setjmp(failure.place) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  const bool four = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  jpeg.scale_num = 1;
  jpeg.scale_denom = window.scale;
  jpeg_start_decompress(&jpeg);
  channels = jpeg.output_components;
  // Colours are interpolated between neighbours, which the edges of a window do not have: the part
  // lies some pixels inside of it.
  constexpr JDIMENSION kMargin = 8;
  const JDIMENSION right = std::min(window.left + window.width + kMargin, jpeg.output_width);
  window.left = window.left > kMargin ? window.left - kMargin : 0;
  window.width = right - window.left;
  window.top = std::min(window.top, jpeg.output_height - 1);
  window.height = std::min(window.height, jpeg.output_height - window.top);
  if (window.width < jpeg.output_width) {
    jpeg_crop_scanline(&jpeg, &window.left, &window.width);
  } else {
    window.left = 0;
  }
  const std::size_t row = static_cast<std::size_t>(window.width) * channels;
  rows.resize(row * window.height);
  if (window.top > 0) jpeg_skip_scanlines(&jpeg, window.top);
  for (JDIMENSION y = 0; y < window.height; ++y) {
    JSAMPROW target = rows.data() + row * y;
    jpeg_read_scanlines(&jpeg, &target, 1);
  }
  jpeg_destroy_decompress(&jpeg);  // what lies below the window is not decoded
  return true;
}

/// Inks to light. Adobe's files hold them inverted, and so does everyone who writes such files.
std::vector<std::uint8_t> rgb_of(const std::vector<std::uint8_t>& cmyk) {
  constexpr unsigned kFull = 255;
  std::vector<std::uint8_t> rgb;
  rgb.reserve(cmyk.size() / 4 * 3);
  for (std::size_t i = 0; i + 3 < cmyk.size(); i += 4) {
    for (std::size_t c = 0; c < 3; ++c)
      rgb.push_back(static_cast<std::uint8_t>((cmyk[i + c] * cmyk[i + 3] + kFull / 2) / kFull));
  }
  return rgb;
}

}  // namespace

Jpeg::Jpeg(std::span<const unsigned char> bytes) : bytes_(bytes) {
  Failure failure{};
  if (bytes.empty()) throw BadImage("is empty");
  if (!read_size(bytes, failure, width_, height_)) throw BadImage(failure.message.data());
}

DecodedPart Jpeg::decode(const Rectangle& part, int side) const {
  Window window;
  constexpr unsigned kMostScale = 8;
  const double least = std::min(part.width, part.height);
  while (window.scale < kMostScale && least / (2 * window.scale) >= side) window.scale *= 2;
  const double scale = window.scale;
  const auto whole = [](double x) { return static_cast<JDIMENSION>(std::max(x, 0.)); };
  window.left = whole(std::floor(part.left / scale));
  window.top = whole(std::floor(part.top / scale));
  window.width = whole(std::ceil((part.left + part.width) / scale)) - window.left;
  window.height = whole(std::ceil((part.top + part.height) / scale)) - window.top;

  Failure failure{};
  DecodedPart result;
  int channels = 0;
  if (!decode_window(bytes_, failure, window, result.pixels.rgb, channels))
    throw BadImage(failure.message.data());
  if (channels == 4) result.pixels.rgb = rgb_of(result.pixels.rgb);
  result.pixels.width = static_cast<int>(window.width);
  result.pixels.height = static_cast<int>(window.height);
  result.part = {part.left / scale - window.left, part.top / scale - window.top, part.width / scale,
                 part.height / scale};
  return result;
}

std::string read_file(const std::filesystem::path& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"),
                                                           &std::fclose);
  const auto fail = [&] { throw BadImage("'" + file.string() + "': " + std::strerror(errno)); };
  if (!in) fail();
  std::string bytes;
  constexpr std::size_t kChunk = 1 << 17;
  std::size_t size = 0;
  do {
    bytes.resize(size + kChunk);
    size += std::fread(bytes.data() + size, 1, kChunk, in.get());
  } while (size == bytes.size());
  if (std::ferror(in.get()) != 0) fail();
  bytes.resize(size);
  return bytes;
}

}  // namespace examples::imagenet
