#include "imagenet/data/write_jpeg.h"

#include <mezzo/error.h>

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>

// After <cstdio>: it uses its types without naming them.
#include <jpeglib.h>

namespace examples::imagenet {
namespace {

// libjpeg leaves by a jump, which must not pass an object with a destructor.
struct WriteFailure {
  jpeg_error_mgr manager;
  std::jmp_buf place;
};

bool encode(const JpegFormat& format, const std::uint8_t* pixels, WriteFailure& failure,
            unsigned char*& bytes, unsigned long& size) {
  jpeg_compress_struct jpeg{};
  jpeg.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = [](j_common_ptr state) {
    std::longjmp(reinterpret_cast<WriteFailure*>(state->err)->place, 1);
  };
  if (setjmp(failure.place) != 0) {
    jpeg_destroy_compress(&jpeg);
    return false;
  }
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_width = static_cast<JDIMENSION>(format.width);
  jpeg.image_height = static_cast<JDIMENSION>(format.height);
  jpeg.input_components = format.channels;
  jpeg.in_color_space = format.channels == 1   ? JCS_GRAYSCALE
                        : format.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, format.quality, TRUE);
  if (format.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const std::size_t row = static_cast<std::size_t>(format.width) * format.channels;
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* line = const_cast<JSAMPROW>(pixels + row * jpeg.next_scanline);
    jpeg_write_scanlines(&jpeg, &line, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return true;
}

}  // namespace

void write_jpeg(const std::filesystem::path& file, const JpegFormat& format,
                std::span<const std::uint8_t> pixels) {
  WriteFailure failure{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const bool is_encoded = encode(format, pixels.data(), failure, bytes, size);
  std::ofstream out(file, std::ios::binary);
  if (is_encoded) {
    out.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  }
  std::free(bytes);
  if (!is_encoded || !out.flush()) throw mezzo::Error("cannot write '" + file.string() + "'");
}

}  // namespace examples::imagenet
