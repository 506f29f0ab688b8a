// Resizing in whole numbers, so that it gives the same bytes on every processor.
#pragma once

#include "imagenet/data/crop.h"
#include "imagenet/data/pixels.h"

namespace examples::imagenet {

/// Resizes a part of an image to side x side pixels, by the triangle that Pillow's BILINEAR uses:
/// where the part is larger, each new pixel averages all that it covers. Weights are rounded to
/// 1/4096, so a value may differ from the exact one by 1. `mirrored` exchanges left and right.
/// `into` takes side * side * 3 bytes.
void resize(const Pixels& image, const Rectangle& part, int side, bool mirrored,
            std::uint8_t* into);

}  // namespace examples::imagenet
