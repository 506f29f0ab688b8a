// From a trained C++ network to a deployed one.
//
//   deploy_trace.h   a TorchScript module of an eager network
//   deploy_onnx.h    an ONNX file of an eager network or a TorchScript module
//   deploy_script.h  a TorchScript module in mixed precision
#pragma once

#include "mezzo/deploy_onnx.h"
#include "mezzo/deploy_script.h"
#include "mezzo/deploy_trace.h"
