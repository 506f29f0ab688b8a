// Decoded pixels.
#pragma once

#include <cstdint>
#include <vector>

namespace examples::imagenet {

/// Rows of pixels, three bytes (red, green, blue) each.
struct Pixels {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

}  // namespace examples::imagenet
