// JPEG files, for test images and data sets that come in other formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace examples::imagenet {

struct JpegFormat {
  int width = 0, height = 0;
  int channels = 3;  ///< 1: grey, 3: RGB, 4: inverted CMYK, as Adobe's programs write it
  int quality = 95;
  bool progressive = false;
};

/// Writes rows of pixels, a byte a channel. Throws mezzo::Error where the file cannot be written.
void write_jpeg(const std::filesystem::path& file, const JpegFormat& format,
                std::span<const std::uint8_t> pixels);

}  // namespace examples::imagenet
