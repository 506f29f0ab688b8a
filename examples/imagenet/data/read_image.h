// From a file to the bytes that a network is given.
#pragma once

#include <cstdint>
#include <filesystem>

#include "imagenet/data/crop.h"

namespace examples::imagenet {

struct Reading {
  int side = 224;           ///< of the square that comes out
  RandomCrop crop = {};     ///< in training
  double centre_share = 1;  ///< in evaluation: the square's part of the shorter side
};

/// Training: a random part, mirrored half the time. `into` takes side * side * 3 bytes. Throws
/// BadImage, which names the file.
void read_for_training(const std::filesystem::path& file, const Reading& reading, Random random,
                       std::uint8_t* into);

/// Evaluation: the middle.
void read_for_evaluation(const std::filesystem::path& file, const Reading& reading,
                         std::uint8_t* into);

}  // namespace examples::imagenet
