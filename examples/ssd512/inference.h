// The tutorial's second half: networks converted for inference in mixed precision.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace examples {

struct InferenceSettings {
  std::string dtype = "bfloat16", device = "cpu";
  std::string model;  ///< a checkpoint of MXNet's, PREFIX of PREFIX-symbol.json; empty: made here
  std::int64_t data_shape = 224, seed = 1;
  std::filesystem::path folder = ".";  ///< for what the tutorial saves
};

/// Converts a ResNet-50 of LibTorch and a symbol of MXNet's with its parameters, by the default
/// lists and by lists of its own, checks the types that the tutorial asserts, saves, loads and runs
/// the results. Throws mezzo::Error where one of these is not as it has to be.
void convert_and_infer(const InferenceSettings& settings);

}  // namespace examples
