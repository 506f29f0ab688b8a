#include "dcgan/image_files.h"

#include <jpeglib.h>
#include <mezzo/error.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csetjmp>
#include <cstdio>
#include <memory>
#include <string>

namespace examples {

namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw mezzo::Error("image '" + file.string() + "' " + what);
}

std::string lower_ending(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

Image read_png(const std::filesystem::path& file) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_file(&png, file.c_str()) == 0) fail(file, png.message);
  png.format = PNG_FORMAT_RGB;
  Image image{static_cast<int>(png.width), static_cast<int>(png.height), {}};
  image.rgb.resize(PNG_IMAGE_SIZE(png));
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&png, &white, image.rgb.data(), 0, nullptr) == 0)
    fail(file, png.message);
  return image;
}

// libjpeg leaves by a jump, which must not pass an object with a destructor.
struct JpegFailure {
  jpeg_error_mgr manager;
  std::jmp_buf place;
  std::array<char, JMSG_LENGTH_MAX> message;
};

void leave(j_common_ptr state) {
  auto* failure = reinterpret_cast<JpegFailure*>(state->err);
  state->err->format_message(state, failure->message.data());
  std::longjmp(failure->place, 1);
}

bool decode_jpeg(std::FILE* in, JpegFailure& failure, Image& image) {
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = leave;
  failure.manager.output_message = [](j_common_ptr) {};
  if (setjmp(failure.place) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_stdio_src(&jpeg, in);
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  image.width = static_cast<int>(jpeg.output_width);
  image.height = static_cast<int>(jpeg.output_height);
  const std::size_t row = 3 * static_cast<std::size_t>(image.width);
  image.rgb.resize(row * static_cast<std::size_t>(image.height));
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW target = image.rgb.data() + row * jpeg.output_scanline;
    jpeg_read_scanlines(&jpeg, &target, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return true;
}

Image read_jpeg(const std::filesystem::path& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"),
                                                           &std::fclose);
  if (!in) fail(file, "cannot be opened");
  JpegFailure failure{};
  Image image;
  if (!decode_jpeg(in.get(), failure, image)) fail(file, failure.message.data());
  return image;
}

}  // namespace

Image read_image(const std::filesystem::path& file) {
  const std::string ending = lower_ending(file);
  if (ending == ".png") return read_png(file);
  if (ending == ".jpg" || ending == ".jpeg") return read_jpeg(file);
  throw mezzo::ConfigError("image '" + file.string() + "' is neither .png nor .jpg");
}

std::vector<std::filesystem::path> list_images(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw mezzo::Error("no folder of images '" + folder.string() + "'");
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string ending = lower_ending(entry.path());
    const bool wanted = ending == ".png" || ending == ".jpg" || ending == ".jpeg";
    if (wanted && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

void write_png(const std::filesystem::path& file, const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  std::filesystem::path beside = file;
  beside += ".part";
  std::error_code failure;
  const bool written =
      png_image_write_to_file(&png, beside.c_str(), 0, image.rgb.data(), 0, nullptr) != 0;
  if (written) std::filesystem::rename(beside, file, failure);
  if (written && !failure) return;
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  fail(file, std::string("cannot be written: ") + (written ? failure.message() : png.message));
}

Image centre_square(const Image& image, int side) {
  const int edge = std::min(image.width, image.height);
  const int left = (image.width - edge) / 2, top = (image.height - edge) / 2;
  Image result{side, side, std::vector<std::uint8_t>(3 * static_cast<std::size_t>(side) * side)};
  const auto begin = [&](int i) { return static_cast<int>(std::int64_t{i} * edge / side); };
  for (int y = 0; y < side; ++y) {
    const int y0 = begin(y), y1 = std::max(begin(y + 1), y0 + 1);
    for (int x = 0; x < side; ++x) {
      const int x0 = begin(x), x1 = std::max(begin(x + 1), x0 + 1);
      for (int c = 0; c < 3; ++c) {
        std::int64_t sum = 0;
        for (int v = y0; v < y1; ++v) {
          for (int u = x0; u < x1; ++u) {
            sum += image.rgb[3 * (static_cast<std::size_t>(top + v) * image.width + left + u) + c];
          }
        }
        result.rgb[3 * (static_cast<std::size_t>(y) * side + x) + c] =
            static_cast<std::uint8_t>(sum / (std::int64_t{y1 - y0} * (x1 - x0)));
      }
    }
  }
  return result;
}

}  // namespace examples
