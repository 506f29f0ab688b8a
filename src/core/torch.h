// The one door to LibTorch: its include order, and every difference between the versions 2.11
// to 2.15.
//
// No other file of ours includes ATen's umbrella headers or asks for TORCH_VERSION_*. Sources add
// the operators that they call as <ATen/ops/NAME.h>; those headers need this one before them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>  // first: clang cannot parse ATen's other headers without it
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymIntArrayRef.h>
#include <torch/headeronly/version.h>

#include "core/raise.h"

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11)
#error "Mezzo needs LibTorch 2.11 or newer"
#endif
