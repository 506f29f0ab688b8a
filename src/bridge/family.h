// The families of kernels for devices, each of which is used or left out as a whole.
#pragma once

#include <cstdint>

namespace mezzo::bridge {

enum class Family : std::uint8_t {
  kSteps,         // the fused optimizers
  kLists,         // multi_tensor.h, checks and loss scales
  kNorms,         // layer and RMS norms
  kBatchNorms,    // batch norms over ranks
  kSplitMasters,  // masters beside bfloat16 weights
};
inline constexpr Family kFamilies[] = {Family::kSteps, Family::kLists, Family::kNorms,
                                       Family::kBatchNorms, Family::kSplitMasters};

/// "steps", "lists", "norms", "batch norms", "split masters".
constexpr const char* name_of(Family family) {
  switch (family) {
    case Family::kSteps:
      return "steps";
    case Family::kLists:
      return "lists";
    case Family::kNorms:
      return "norms";
    case Family::kBatchNorms:
      return "batch norms";
    case Family::kSplitMasters:
      return "split masters";
  }
  return "";
}

}  // namespace mezzo::bridge
