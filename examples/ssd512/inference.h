// The tutorial's second half: networks converted for inference in mixed precision.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace examples {

struct InferenceSettings {
  std::string dtype = "bfloat16", device = "cpu";
  std::string model;  ///< PREFIX of PREFIX-symbol.json, a checkpoint of MXNet; empty: made here
  std::int64_t data_shape = 224, seed = 1;
  std::filesystem::path folder = ".";  ///< for what the tutorial saves
};

/// Converts a ResNet-50 of LibTorch, and a symbol of MXNet with its parameters: by the default
/// lists and by the tutorial's own. Checks the types that the tutorial asserts, then saves, loads
/// and runs the results; amp_tutorial_resnet50.pt and the pair amp_tutorial_model stay in `folder`.
/// Throws mezzo::Error if a check fails.
void convert_and_infer(const InferenceSettings& settings);

}  // namespace examples
