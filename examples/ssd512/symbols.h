// A model as MXNet keeps it, made here: the tutorial downloads one.
#pragma once

#include <mezzo/convert_mxnet.h>

namespace examples {

/// ResNet-18 with first weights, under the names of MXNet's imagenet1k-resnet-18: a graph that ends
/// in SoftmaxOutput, parameters (conv0_weight, ..., fc1_bias) and statistics.
mezzo::convert::mxnet::Checkpoint make_resnet18();

}  // namespace examples
