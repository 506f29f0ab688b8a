// Operators of torchvision, for TorchScript files of detectors.
#pragma once

#include "mezzo/export.h"

namespace mezzo::deploy {

/// Registers the schemas of torchvision's operators if the process has no such library, with
/// kernels for nms and roi_align, as torchvision documents them, on the CPU. A process that has
/// called this cannot load torchvision afterwards.
MEZZO_API void know_torchvision();

}  // namespace mezzo::deploy
