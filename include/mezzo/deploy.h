// From a trained C++ network to a deployed one.
//
//   deploy_trace.h  a TorchScript module of an eager network
#pragma once

#include "mezzo/deploy_trace.h"
