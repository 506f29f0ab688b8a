// The place that a training has reached, and its origin: a checkpoint says both beside the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "imagenet/train/recipe.h"

namespace examples::imagenet {

/// Order and crops follow from the seed, the epoch and an image's place: these two numbers are the
/// whole state of sampler and loader.
struct Position {
  std::int64_t epoch = 0, step = 0;  ///< from 0; the next step of the epoch
  double best = 0;                   ///< best top-1 of an evaluation so far
  at::Tensor sums = {};              ///< of the epoch's meter, on the CPU
};

/// Names and values that must stay the same for an epoch to go on with the same images.
using Origin = std::map<std::string, std::string>;

Notes notes_of(const Position& position, const Origin& origin);

/// Throws mezzo::Error for a file without a position, and mezzo::ConfigError where it lies inside
/// of an epoch of another origin; between epochs only "arch" must fit.
Position position_of(const Notes& notes, const Origin& origin, const std::string& file);

}  // namespace examples::imagenet
