// Made-up photographs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "imagenet/data/pixels.h"
#include "imagenet/data/write_jpeg.h"
#include "support/process.h"

namespace examples::imagenet {

/// Smooth colours that differ everywhere, which JPEG keeps well; of a kind: with much of one
/// colour.
inline Pixels picture(int width, int height, int kind = -1) {
  Pixels image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.rgb.push_back(static_cast<std::uint8_t>(255 * x / width));
      image.rgb.push_back(static_cast<std::uint8_t>(255 * y / height));
      image.rgb.push_back(static_cast<std::uint8_t>((x + y) % 256 / 2 + 64));
    }
  }
  for (std::size_t i = 0; kind >= 0 && i < image.rgb.size(); ++i) {
    const bool is_its_colour = static_cast<int>(i % 3) == kind % 3;
    image.rgb[i] = static_cast<std::uint8_t>(image.rgb[i] / 2 + (is_its_colour ? 128 : 0));
  }
  return image;
}

inline void write_picture(const std::filesystem::path& file, const Pixels& image,
                          bool progressive = false) {
  std::filesystem::create_directories(file.parent_path());
  write_jpeg(file, {.width = image.width, .height = image.height, .progressive = progressive},
             image.rgb);
}

/// DIR/train and DIR/val with so many classes, and images of each.
inline void write_data_set(const std::filesystem::path& folder, int kinds, int train, int val) {
  const auto part = [&](const std::string& name, int count) {
    for (int kind = 0; kind < kinds; ++kind) {
      for (int i = 0; i < count; ++i) {
        write_picture(
            folder / name / ("kind" + std::to_string(kind)) / (std::to_string(i) + ".jpg"),
            picture(40 + i, 36 + kind, kind));
      }
    }
  };
  part("train", train);
  part("val", val);
}

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace examples::imagenet
