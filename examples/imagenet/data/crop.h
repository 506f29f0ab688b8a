// Which part of a photograph a network sees.
#pragma once

#include "imagenet/data/random.h"

namespace examples::imagenet {

/// A rectangle in pixels of an image; its edges may lie inside of pixels.
struct Rectangle {
  double left = 0, top = 0, width = 0, height = 0;
  bool operator==(const Rectangle&) const = default;
};

struct RandomCrop {
  double least_area = 0.08, most_area = 1;           ///< parts of the image's area
  double least_ratio = 3. / 4, most_ratio = 4. / 3;  ///< width over height, evenly by logarithm
};

/// A random rectangle of whole pixels. Where none of ten fits into the image, the largest one in
/// its middle that the ratios allow.
Rectangle random_crop(int width, int height, const RandomCrop& how, Random& random);

/// The square in the middle that is `share` of the shorter side (224/256: the usual evaluation).
Rectangle centre_crop(int width, int height, double share);

}  // namespace examples::imagenet
