// Images in files: PNG and JPEG in, PNG out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples {

struct Image {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< three bytes a pixel, row by row from the top
};

/// Reads a .png, .jpg or .jpeg file of any colour type. Throws mezzo::Error that names the file
/// when it is missing or damaged, mezzo::ConfigError for another ending.
Image read_image(const std::filesystem::path& file);

/// The files in a folder, below it too, that read_image() takes, in order of their names.
std::vector<std::filesystem::path> list_images(const std::filesystem::path& folder);

/// Writes a PNG file, whole or not at all. Throws mezzo::Error where it cannot.
void write_png(const std::filesystem::path& file, const Image& image);

/// The largest square in the middle, resized to side x side by averaging what each new pixel
/// covers.
Image centre_square(const Image& image, int side);

}  // namespace examples
